/* Sockets that few programs have: UDP with a filter that is locked, one of more than 32 instructions; UDP-Lite with the part that its checksum
 * covers; and, where the user may have them, one of ICMP by which somebody can be asked for an echo, and a raw one that gets some messages only. */
#include "victim.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/icmp.h>
#include <sys/socket.h>

enum { LITE = 136, SEND_COVER = 10, COVERED = 20, LONG = 200, SOL_OF_RAW = 255, FILTER_OF_ICMP = 1 };

/* Places for the addresses that a packet passes by, and one byte of nothing. */
static const unsigned char header_options[8] = { 7, 7, 4, 0, 0, 0, 0, 1 };
static int filtered, sender, lite[2], ping = -1, raw = -1;
static struct sockaddr_in filtered_name, ping_name;

static int bound(int kind, int protocol, struct sockaddr_in *name)
{
	socklen_t bytes = sizeof *name;
	int file = socket(AF_INET, kind, protocol);
	*name = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(file >= 0 && bind(file, (struct sockaddr *)name, bytes) == 0);
	CHECK(getsockname(file, (struct sockaddr *)name, &bytes) == 0);
	return file;
}

/* Lets pass what begins with the letter p (behind the eight bytes of the header of UDP); the rest does nothing. */
static void make_filter(void)
{
	static struct sock_filter code[LONG];
	int yes = 1;
	for (int i = 0; i < LONG; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, 0);
	code[LONG - 4] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8);
	code[LONG - 3] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'p', 1, 0);
	code[LONG - 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0);
	code[LONG - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffff);
	struct sock_fprog program = { LONG, code };
	filtered = bound(SOCK_DGRAM, 0, &filtered_name);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_LOCK_FILTER, &yes, sizeof yes) == 0);
	struct sockaddr_in any;
	sender = bound(SOCK_DGRAM, 0, &any);
	CHECK(connect(sender, (struct sockaddr *)&filtered_name, sizeof filtered_name) == 0);
	CHECK(setsockopt(sender, IPPROTO_IP, IP_OPTIONS, header_options, sizeof header_options) == 0);
	CHECK(send(sender, "dropped", 7, 0) == 7 && send(sender, "passed", 6, 0) == 6);
}

static void set_up(void)
{
	struct sockaddr_in names[2];
	int cover = COVERED;
	make_filter();
	for (int end = 0; end < 2; end++)
		lite[end] = bound(SOCK_DGRAM, LITE, &names[end]);
	CHECK(connect(lite[0], (struct sockaddr *)&names[1], sizeof names[1]) == 0);
	CHECK(setsockopt(lite[0], LITE, SEND_COVER, &cover, sizeof cover) == 0 && send(lite[0], "early", 5, 0) == 5);
	if (geteuid() != 0)
		return;
	/* In a network of its own the program decides who may have such sockets. */
	int range = open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY);
	if (range >= 0 && write(range, "0 1000", 6) == 6)
		ping = bound(SOCK_DGRAM, IPPROTO_ICMP, &ping_name);
	close(range);
	raw = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	uint32_t left_out = ~(1u << ICMP_ECHO);
	CHECK(raw >= 0 && setsockopt(raw, SOL_OF_RAW, FILTER_OF_ICMP, &left_out, sizeof left_out) == 0);
}

static void hold(int step)
{
	int cover = 0, off = 0;
	socklen_t bytes = sizeof cover;
	CHECK(getsockopt(lite[0], LITE, SEND_COVER, &cover, &bytes) == 0 && cover == COVERED);
	unsigned char found[sizeof header_options];
	bytes = sizeof found;
	CHECK(getsockopt(sender, IPPROTO_IP, IP_OPTIONS, found, &bytes) == 0 && bytes == sizeof found);
	CHECK(memcmp(found, header_options, sizeof found) == 0);
	CHECK(setsockopt(filtered, SOL_SOCKET, SO_DETACH_FILTER, &off, sizeof off) == -1 && errno == EPERM);
	if (raw >= 0) {
		uint32_t left_out = 0;
		bytes = sizeof left_out;
		CHECK(getsockopt(raw, SOL_OF_RAW, FILTER_OF_ICMP, &left_out, &bytes) == 0 && left_out == ~(1u << ICMP_ECHO));
	}
	say("step %d", step);
}

static void is_read(int file, const char *expected)
{
	char found[64] = "";
	CHECK(recv(file, found, sizeof found - 1, MSG_DONTWAIT) == (ssize_t)strlen(expected) && strcmp(found, expected) == 0);
}

static void verify(void)
{
	is_read(filtered, "passed");
	CHECK(send(sender, "dropped", 7, 0) == 7 && send(sender, "passed again", 12, 0) == 12);
	is_read(filtered, "passed again");
	CHECK(recv(filtered, &(char){ 0 }, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	is_read(lite[1], "early");
	CHECK(send(lite[0], "late", 4, 0) == 4);
	is_read(lite[1], "late");
	if (ping >= 0) {
		struct icmphdr echo = { .type = ICMP_ECHO, .un.echo.sequence = htons(9) }, answer = { 0 };
		struct sockaddr_in now;
		socklen_t bytes = sizeof now;
		CHECK(getsockname(ping, (struct sockaddr *)&now, &bytes) == 0 && now.sin_port == ping_name.sin_port);
		now.sin_port = 0;
		CHECK(sendto(ping, &echo, sizeof echo, 0, (struct sockaddr *)&now, sizeof now) == sizeof echo);
		CHECK(recv(ping, &answer, sizeof answer, 0) == sizeof answer && answer.type == ICMP_ECHOREPLY);
		CHECK(answer.un.echo.sequence == htons(9) && answer.un.echo.id == ping_name.sin_port);
		/* The question, and not the answer. */
		unsigned char packet[256];
		CHECK(recv(raw, packet, sizeof packet, 0) == 20 + sizeof echo && packet[20] == ICMP_ECHO);
		CHECK(recv(raw, packet, sizeof packet, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	}
}
