/* A thread that waits in a call on a socket. */
#include "one_call.h"
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static int ends[2];
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_bytes = sizeof(sa_family_t);
static const struct timeval long_time = { .tv_sec = 100000 };

static int with_time_out(int socket)
{
	CHECK(setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time) == 0);
	CHECK(setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &long_time, sizeof long_time) == 0);
	return socket;
}

/* The kernel gives it a name of its own. */
static void listen_somewhere(void)
{
	number = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(number >= 0 && bind(number, (struct sockaddr *)&address, address_bytes) == 0 && listen(number, 0) == 0);
	address_bytes = sizeof address;
	CHECK(getsockname(number, (struct sockaddr *)&address, &address_bytes) == 0);
}

static void listen_for_a_time(void)
{
	listen_somewhere();
	with_time_out(number);
}

static int accept_one(void)
{
	return accept(number, NULL, NULL) >= 0;
}

static int accept_one_closed_on_exec(void)
{
	return accept4(number, NULL, NULL, SOCK_CLOEXEC) >= 0;
}

static void be_accepted(void)
{
	int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(socket_ >= 0 && connect(socket_, (struct sockaddr *)&address, address_bytes) == 0);
}

static void listen_to_too_many(void)
{
	int answer;
	listen_somewhere();
	do {
		int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(caller >= 0);
		answer = connect(caller, (struct sockaddr *)&address, address_bytes);
	} while (answer == 0);
	CHECK(errno == EAGAIN);
}

static int connect_one(void)
{
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, address_bytes) == 0;
}

static int connect_for_a_time(void)
{
	int caller = with_time_out(socket(AF_UNIX, SOCK_STREAM, 0));
	return connect(caller, (struct sockaddr *)&address, address_bytes) == 0;
}

static void accept_another(void)
{
	CHECK(accept(number, NULL, NULL) >= 0);
}

static void make_pair(void)
{
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	number = ends[0];
}

static void make_pair_with_time_out(void)
{
	make_pair();
	with_time_out(number);
}

static void make_full_pair(void)
{
	make_pair_with_time_out();
	while (send(number, "x", 1, MSG_DONTWAIT) == 1)
		;
	CHECK(errno == EAGAIN);
}

static struct iovec byte_place(void)
{
	static char byte = 'x';
	return (struct iovec){ &byte, 1 };
}

static int recv_byte(void)
{
	char byte;
	return recv(number, &byte, 1, 0) == 1;
}

static int recvmsg_byte(void)
{
	struct iovec byte = byte_place();
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };
	return recvmsg(number, &message, 0) == 1;
}

static int recvmmsg_byte(void)
{
	struct iovec byte = byte_place();
	struct mmsghdr message = { .msg_hdr = { .msg_iov = &byte, .msg_iovlen = 1 } };
	return recvmmsg(number, &message, 1, 0, NULL) == 1;
}

static int read_byte(void)
{
	char byte;
	return read(number, &byte, 1) == 1;
}

static int readv_byte(void)
{
	struct iovec byte = byte_place();
	return readv(number, &byte, 1) == 1;
}

static void send_byte(void)
{
	CHECK(send(ends[1], "x", 1, 0) == 1);
}

static int send_one(void)
{
	return send(number, "x", 1, 0) == 1;
}

static int sendmsg_one(void)
{
	struct iovec byte = byte_place();
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };
	return sendmsg(number, &message, 0) == 1;
}

static int sendmmsg_one(void)
{
	struct iovec byte = byte_place();
	struct mmsghdr message = { .msg_hdr = { .msg_iov = &byte, .msg_iovlen = 1 } };
	return sendmmsg(number, &message, 1, 0) == 1;
}

static int write_one(void)
{
	return write(number, "x", 1) == 1;
}

static int writev_one(void)
{
	struct iovec byte = byte_place();
	return writev(number, &byte, 1) == 1;
}

/* A sender is woken when there is much room. */
static void receive_others(void)
{
	char byte;
	while (recv(ends[1], &byte, 1, MSG_DONTWAIT) == 1)
		;
}

const struct call calls[] = {
	{ "accept", listen_somewhere, accept_one, SYS_accept, be_accepted },
	{ "accept_timed", listen_for_a_time, accept_one, SYS_accept, be_accepted },
	{ "accept4_timed", listen_for_a_time, accept_one_closed_on_exec, SYS_accept4, be_accepted },
	{ "connect", listen_to_too_many, connect_one, SYS_connect, accept_another },
	{ "connect_timed", listen_to_too_many, connect_for_a_time, SYS_connect, accept_another },
	{ "recv", make_pair, recv_byte, SYS_recvfrom, send_byte },
	{ "recv_timed", make_pair_with_time_out, recv_byte, SYS_recvfrom, send_byte },
	{ "recvmsg_timed", make_pair_with_time_out, recvmsg_byte, SYS_recvmsg, send_byte },
	{ "recvmmsg_timed", make_pair_with_time_out, recvmmsg_byte, SYS_recvmmsg, send_byte },
	{ "read_timed", make_pair_with_time_out, read_byte, SYS_read, send_byte },
	{ "readv_timed", make_pair_with_time_out, readv_byte, SYS_readv, send_byte },
	{ "send_timed", make_full_pair, send_one, SYS_sendto, receive_others },
	{ "sendmsg_timed", make_full_pair, sendmsg_one, SYS_sendmsg, receive_others },
	{ "sendmmsg_timed", make_full_pair, sendmmsg_one, SYS_sendmmsg, receive_others },
	{ "write_timed", make_full_pair, write_one, SYS_write, receive_others },
	{ "writev_timed", make_full_pair, writev_one, SYS_writev, receive_others },
	{ 0 },
};
