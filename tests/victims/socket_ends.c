/* Sockets that are not as they were made: a datagram for an abstract name from a client without one; datagrams, one with a descriptor, in one end
 * of a pair whose other end is closed; a connection of TCP that both ends have shut down, sockets of UDP of which one has been; a socket of netlink that was told where to
 * send. What lies unread is read at the end. */
#include "victim.h"
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static int server, client, half, tcp[2], udp[2], told, told_to;
static struct sockaddr_nl place;

static void put(int file, const char *text, int descriptor)
{
	struct iovec part = { (void *)text, strlen(text) };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	if (descriptor >= 0) {
		memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
		message.msg_control = control.room, message.msg_controllen = sizeof control.room;
	}
	CHECK(sendmsg(file, &message, 0) == (ssize_t)strlen(text));
}

static void is_read(int file, const char *expected)
{
	char found[16] = "";
	CHECK(recv(file, found, sizeof found, MSG_DONTWAIT) == (ssize_t)strlen(expected) && strcmp(found, expected) == 0);
}

static void make_datagrams(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int bytes = snprintf(name.sun_path + 1, 60, "ckpt-socket-ends-%d", getpid());
	socklen_t length = (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1 + (socklen_t)bytes;
	server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK(bind(server, (struct sockaddr *)&name, length) == 0);
	CHECK(connect(client, (struct sockaddr *)&name, length) == 0);
	put(client, "early", -1);
	int pair[2], ends[2];
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0 && pipe(ends) == 0);
	put(pair[0], "plain", -1);
	put(pair[0], "passed", ends[0]);
	CHECK(write(ends[1], "x", 1) == 1);
	close(pair[0]), close(ends[0]), close(ends[1]);
	half = pair[1];
}

static void set_up(void)
{
	signal(SIGPIPE, SIG_IGN);
	make_datagrams();
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof any;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	tcp[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&any, bytes) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&any, &bytes) == 0);
	CHECK(connect(tcp[0], (struct sockaddr *)&any, sizeof any) == 0 && (tcp[1] = accept(listener, NULL, NULL)) >= 0);
	close(listener);
	CHECK(shutdown(tcp[0], SHUT_WR) == 0 && shutdown(tcp[1], SHUT_WR) == 0);

	struct sockaddr_in names[2];
	for (int end = 0; end < 2; end++) {
		names[end] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		bytes = sizeof names[end];
		udp[end] = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK(bind(udp[end], (struct sockaddr *)&names[end], bytes) == 0);
		CHECK(getsockname(udp[end], (struct sockaddr *)&names[end], &bytes) == 0);
	}
	for (int end = 0; end < 2; end++)
		CHECK(connect(udp[end], (struct sockaddr *)&names[!end], sizeof names[!end]) == 0);
	CHECK(shutdown(udp[0], SHUT_WR) == 0);

	place = (struct sockaddr_nl){ .nl_family = AF_NETLINK, .nl_pid = (unsigned)getpid() };
	told_to = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK), told = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK);
	CHECK(bind(told_to, (struct sockaddr *)&place, sizeof place) == 0);
	CHECK(connect(told, (struct sockaddr *)&place, sizeof place) == 0);
}

static void hold(int step)
{
	for (int end = 0; end < 2; end++) {
		char byte;
		CHECK(recv(tcp[end], &byte, 1, MSG_DONTWAIT) == 0);
		CHECK(write(tcp[end], "x", 1) == -1 && errno == EPIPE);
	}
	char datagram;
	CHECK(write(udp[0], "x", 1) == -1 && errno == EPIPE);
	CHECK(write(udp[1], "y", 1) == 1 && recv(udp[0], &datagram, 1, MSG_DONTWAIT) == 1 && datagram == 'y');
	struct nlmsghdr message = { .nlmsg_len = sizeof message, .nlmsg_type = 0x1234, .nlmsg_seq = (unsigned)step }, found;
	CHECK(send(told, &message, sizeof message, 0) == sizeof message);
	CHECK(recv(told_to, &found, sizeof found, MSG_DONTWAIT) == sizeof found && found.nlmsg_seq == (unsigned)step);
	say("step %d", step);
}

static void verify(void)
{
	is_read(server, "early");
	put(client, "late", -1);
	is_read(server, "late");
	is_read(half, "plain");
	char text[16], byte;
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { text, sizeof text };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room };
	CHECK(recvmsg(half, &message, MSG_DONTWAIT) == 6 && memcmp(text, "passed", 6) == 0);
	int passed;
	CHECK(CMSG_FIRSTHDR(&message) != NULL);
	memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
	CHECK(read(passed, &byte, 1) == 1 && byte == 'x' && read(passed, &byte, 1) == 0);
}
