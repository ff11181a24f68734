/* TCP and UDP inside one job: both ends of connections with what lies unread in them, listeners, options, and a server of its own that
 * answers throughout. */
#include "doubling_server.h"
#include "netlink.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/wait.h>

enum { BIG = 60000, CLIENTS = 4, LOCKED_BOTH = 3 };

union any {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
};

static int listener, six_listener, clients[CLIENTS];
static int one, other, half_one, half_other, ended, six_one, six_other, waiting, gone_one, gone_other, never;
static int udp, udp_client, udp_any, routes;
static union any names[CLIENTS], server_name;
static pid_t server;
static unsigned char buffer[BIG];

static union any local(int family, int port)
{
	union any to;
	memset(&to, 0, sizeof to);
	to.any.sa_family = (sa_family_t)family;
	if (family == AF_INET) {
		to.four.sin_port = htons((uint16_t)port);
		to.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		to.six.sin6_port = htons((uint16_t)port);
		to.six.sin6_addr = in6addr_loopback;
	}
	return to;
}

static socklen_t size_of(const union any *address)
{
	return address->any.sa_family == AF_INET ? sizeof address->four : sizeof address->six;
}

static union any name_of(int file, int of_peer)
{
	union any name;
	socklen_t bytes = sizeof name;
	memset(&name, 0, sizeof name);
	CHECK((of_peer ? getpeername : getsockname)(file, &name.any, &bytes) == 0);
	return name;
}

static void set(int file, int level, int option, int value)
{
	CHECK(setsockopt(file, level, option, &value, sizeof value) == 0);
}

static int get(int file, int level, int option)
{
	int value = 0;
	socklen_t bytes = sizeof value;
	CHECK(getsockopt(file, level, option, &value, &bytes) == 0);
	return value;
}

static int listening(int family)
{
	union any to = local(family, 0);
	int made = socket(family, SOCK_STREAM, 0);
	CHECK(made >= 0 && bind(made, &to.any, size_of(&to)) == 0 && listen(made, 10) == 0);
	return made;
}

static int connected(const union any *to)
{
	int made = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(made >= 0 && connect(made, &to->any, size_of(to)) == 0);
	return made;
}

static int accepted(int from)
{
	int made = accept(from, NULL, NULL);
	CHECK(made >= 0);
	return made;
}

static void ask(int client, int number)
{
	int wanted = 2 * number;
	CHECK(write(client, &number, sizeof number) == sizeof number);
	CHECK(read(client, &number, sizeof number) == sizeof number && number == wanted);
}

static void set_up_udp(void)
{
	union any to = local(AF_INET, 0), any = local(AF_INET, 0);
	any.four.sin_addr.s_addr = INADDR_ANY;
	CHECK((udp = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && bind(udp, &to.any, size_of(&to)) == 0);
	CHECK((udp_any = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && bind(udp_any, &any.any, size_of(&any)) == 0);
	to = name_of(udp, 0);
	CHECK((udp_client = socket(AF_INET, SOCK_DGRAM, 0)) >= 0 && connect(udp_client, &to.any, size_of(&to)) == 0);
	CHECK(write(udp_client, "one", 3) == 3 && write(udp_client, "second", 6) == 6);
	to = local(AF_INET, ntohs(name_of(udp_any, 0).four.sin_port));
	CHECK(sendto(udp, "to any", 6, 0, &to.any, size_of(&to)) == 6);
}

static void set_up(void)
{
	listener = listening(AF_INET);
	server_name = name_of(listener, 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = connected(&server_name);
	CHECK((server = fork()) >= 0);
	if (server == 0)
		serve(listener, clients, CLIENTS);
	for (int i = 0; i < CLIENTS; i++) {
		names[i] = name_of(clients[i], 0);
		ask(clients[i], i);
	}
	one = connected(&server_name), other = accepted(listener);
	half_one = connected(&server_name), half_other = accepted(listener);
	ended = connected(&server_name);
	int ending = accepted(listener);
	for (size_t i = 0; i < BIG; i++)
		buffer[i] = (unsigned char)mix(i);
	CHECK(write(one, buffer, BIG) == BIG && write(other, "towards one", 11) == 11);
	CHECK(write(half_one, "half", 4) == 4 && shutdown(half_one, SHUT_WR) == 0);
	CHECK(write(ending, "last words", 10) == 10 && close(ending) == 0);
	six_listener = listening(AF_INET6);
	union any to = name_of(six_listener, 0);
	six_one = connected(&to), six_other = accepted(six_listener);
	CHECK(write(six_one, "six", 3) == 3);
	/* One whose listener has been closed. */
	int gone = listening(AF_INET);
	to = name_of(gone, 0);
	gone_one = connected(&to), gone_other = accepted(gone);
	CHECK(close(gone) == 0);
	CHECK((never = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	set(one, IPPROTO_TCP, TCP_NODELAY, 1);
	set(one, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(one, IPPROTO_TCP, TCP_KEEPIDLE, 123);
	set(one, SOL_SOCKET, SO_SNDBUF, 100000);
	set(other, IPPROTO_IP, IP_TOS, 8);
	/* Sizes that the kernel has chosen and is to leave alone, and an address that the machine need not have. */
	set(half_one, SOL_SOCKET, SO_BUF_LOCK, LOCKED_BOTH);
	set(never, IPPROTO_IP, IP_FREEBIND, 1);
	set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	set(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 3);
	CHECK(fcntl(other, F_SETFL, O_NONBLOCK) == 0);
	set_up_udp();
	routes = open_netlink();
	set(routes, SOL_NETLINK, NETLINK_EXT_ACK, 1);
	waiting = connected(&(union any){ .six = name_of(six_listener, 0).six });
}

static void hold(int step)
{
	int value;
	for (int i = 0; i < CLIENTS; i++) {
		union any own = name_of(clients[i], 0), peer = name_of(clients[i], 1);
		ask(clients[i], step + i);
		CHECK(memcmp(&peer, &server_name, sizeof peer.four) == 0);
		CHECK(memcmp(&own, &names[i], sizeof own.four) == 0 || strcmp(kind, "other_ports") == 0);
	}
	CHECK(get(one, IPPROTO_TCP, TCP_NODELAY) == 1 && get(one, SOL_SOCKET, SO_KEEPALIVE) == 1);
	CHECK(get(one, IPPROTO_TCP, TCP_KEEPIDLE) == 123 && get(one, SOL_SOCKET, SO_SNDBUF) == 200000);
	CHECK(get(other, IPPROTO_IP, IP_TOS) == 8 && get(never, SOL_SOCKET, SO_REUSEADDR) == 0);
	CHECK(get(listener, SOL_SOCKET, SO_REUSEADDR) == 1 && get(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT) == 3);
	CHECK(get(listener, SOL_SOCKET, SO_ACCEPTCONN) == 1);
	CHECK(get(half_one, SOL_SOCKET, SO_BUF_LOCK) == LOCKED_BOTH && get(half_other, SOL_SOCKET, SO_BUF_LOCK) == 0);
	CHECK(get(never, IPPROTO_IP, IP_FREEBIND) == 1);
	CHECK(fcntl(one, F_GETFD) == FD_CLOEXEC && (fcntl(other, F_GETFL) & O_NONBLOCK) != 0);
	ask_kernel(routes);
	hear_kernel(routes);
	CHECK(get(routes, SOL_NETLINK, NETLINK_EXT_ACK) == 1);
	/* A message that goes round with each step. */
	CHECK(send(gone_one, &step, sizeof step, 0) == sizeof step);
	CHECK(recv(gone_other, &value, sizeof value, MSG_WAITALL) == sizeof value && value == step);
	say("step %d", step);
}

static void verify(void)
{
	char text[64];
	int status;
	CHECK(read(one, text, sizeof text) == 11 && memcmp(text, "towards one", 11) == 0);
	CHECK(fcntl(other, F_SETFL, 0) == 0);
	CHECK(recv(other, buffer, BIG, MSG_WAITALL) == BIG);
	for (size_t i = 0; i < BIG; i++)
		CHECK(buffer[i] == (unsigned char)mix(i));
	CHECK(recv(other, text, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(read(half_other, text, sizeof text) == 4 && read(half_other, text, sizeof text) == 0);
	CHECK(send(half_one, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(write(half_other, "back", 4) == 4 && read(half_one, text, sizeof text) == 4);
	CHECK(read(ended, text, sizeof text) == 10 && read(ended, text, sizeof text) == 0);
	CHECK(read(six_other, text, sizeof text) == 3);
	CHECK(read(never, text, 1) == -1 && errno == ENOTCONN);
	CHECK(connect(never, &server_name.any, sizeof server_name.four) == 0);
	CHECK(write(waiting, "late", 4) == 4);
	int late = accepted(six_listener);
	CHECK(read(late, text, sizeof text) == 4);
	union any from, wanted = name_of(udp_client, 0);
	socklen_t bytes = sizeof from;
	CHECK(recvfrom(udp, text, sizeof text, 0, &from.any, &bytes) == 3 && memcmp(&from, &wanted, sizeof from.four) == 0);
	CHECK(read(udp, text, sizeof text) == 6 && memcmp(text, "second", 6) == 0);
	bytes = sizeof from;
	wanted = name_of(udp, 0);
	CHECK(recvfrom(udp_any, text, sizeof text, 0, &from.any, &bytes) == 6 && memcmp(&from, &wanted, sizeof from.four) == 0);
	for (int i = 0; i < CLIENTS; i++)
		CHECK(close(clients[i]) == 0);
	CHECK(waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SERVED);
}
