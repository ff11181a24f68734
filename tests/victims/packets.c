/* Sockets of packets, which root alone has: one at an interface, with a filter, that gets what is sent to a port of this machine and nothing
 * else; one of a protocol, at no interface; and what they have joined. */
#include "victim.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Of TCP/IP numbers: where a datagram on the loopback has its protocol and its port. */
enum { PROTOCOL = 9, PORT = 22, UDP = 17, PACKETS = 263, IGNORE_OUTGOING = 23 };
static const unsigned char group[6] = {0x01, 0x00, 0x5e, 0x01, 0x02, 0x03};
static int at_loopback = -1, anywhere = -1, sender, receiver;
static struct sockaddr_in place;

static void join(int socket, unsigned short kind)
{
	struct packet_mreq wish = {.mr_ifindex = (int)if_nametoindex("lo"), .mr_type = kind};
	if (kind == PACKET_MR_MULTICAST) {
		wish.mr_alen = sizeof group;
		memcpy(wish.mr_address, group, sizeof group);
	}
	CHECK(setsockopt(socket, PACKETS, PACKET_ADD_MEMBERSHIP, &wish, sizeof wish) == 0);
}

static void filter(int socket)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, PROTOCOL),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UDP, 0, 3),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, PORT),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohs(place.sin_port), 0, 1),
		BPF_STMT(BPF_RET | BPF_K, 0xffff),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	CHECK(setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
}

static void set_up(void)
{
	int yes = 1;
	struct ifreq up = {.ifr_name = "lo"};
	at_loopback = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (at_loopback < 0) {
		say("skipped: no sockets of packets");
		_exit(EXIT_SKIPPED);
	}
	socklen_t bytes = sizeof place;
	receiver = socket(AF_INET, SOCK_DGRAM, 0);
	sender = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(receiver >= 0 && sender >= 0 && ioctl(sender, SIOCGIFFLAGS, &up) == 0);
	if (!(up.ifr_flags & IFF_UP)) {
		say("skipped: no loopback");
		_exit(EXIT_SKIPPED);
	}
	place = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(bind(receiver, (struct sockaddr *)&place, bytes) == 0);
	CHECK(getsockname(receiver, (struct sockaddr *)&place, &bytes) == 0);
	filter(at_loopback);
	CHECK(setsockopt(at_loopback, PACKETS, IGNORE_OUTGOING, &yes, sizeof yes) == 0);
	CHECK(setsockopt(at_loopback, PACKETS, PACKET_AUXDATA, &yes, sizeof yes) == 0);
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)if_nametoindex("lo")};
	CHECK(bind(at_loopback, (struct sockaddr *)&at, sizeof at) == 0);
	/* A protocol that this machine has none of. */
	anywhere = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_LOOPBACK));
	CHECK(anywhere >= 0);
	join(anywhere, PACKET_MR_MULTICAST);
	join(anywhere, PACKET_MR_MULTICAST);
	join(at_loopback, PACKET_MR_ALLMULTI);
}

static int is_joined(void)
{
	char line[256];
	int found = 0;
	FILE *all = fopen("/proc/self/net/dev_mcast", "re");
	CHECK(all != NULL);
	while (fgets(line, sizeof line, all) != NULL)
		found |= strstr(line, "01005e010203") != NULL;
	fclose(all);
	return found;
}

static void hold(int step)
{
	char datagram[8], got[256];
	struct sockaddr_ll from;
	socklen_t bytes = sizeof from;
	int number = 0;
	snprintf(datagram, sizeof datagram, "no %03d", step % 1000);
	CHECK(sendto(sender, datagram, 6, 0, (struct sockaddr *)&place, sizeof place) == 6);
	CHECK(recv(receiver, got, sizeof got, 0) == 6 && memcmp(got, datagram, 6) == 0);
	/* What came before this life went on may have been lost; the newest is there, once. */
	ssize_t length = recvfrom(at_loopback, got, sizeof got, 0, (struct sockaddr *)&from, &bytes);
	CHECK(length == 20 + 8 + 6 && memcmp(got + 28, datagram, 6) == 0);
	CHECK(from.sll_ifindex == (int)if_nametoindex("lo") && from.sll_protocol == htons(ETH_P_IP));
	CHECK(recv(at_loopback, got, sizeof got, 0) == -1 && errno == EAGAIN);
	bytes = sizeof number;
	CHECK(getsockopt(at_loopback, PACKETS, PACKET_AUXDATA, &number, &bytes) == 0 && number == 1);
	bytes = sizeof from;
	CHECK(getsockname(anywhere, (struct sockaddr *)&from, &bytes) == 0);
	CHECK(from.sll_protocol == htons(ETH_P_LOOPBACK) && from.sll_ifindex == 0);
	CHECK(is_joined() && recv(anywhere, got, sizeof got, 0) == -1 && errno == EAGAIN);
	say("step %d", step);
}

static void leave(int last)
{
	struct packet_mreq wish = {.mr_ifindex = (int)if_nametoindex("lo"), .mr_type = PACKET_MR_MULTICAST, .mr_alen = sizeof group};
	memcpy(wish.mr_address, group, sizeof group);
	CHECK(setsockopt(anywhere, PACKETS, PACKET_DROP_MEMBERSHIP, &wish, sizeof wish) == 0);
	CHECK(is_joined() == !last);
}

static void verify(void)
{
	leave(0);
	leave(1);
}
