/* Sockets of both families that reach each other: a server on :: with a client of IPv4, as node and java have it; a client of IPv6
 * that reaches a server of IPv4 by its mapped address; a datagram socket of IPv6 connected with one of IPv4. */
#include "victim.h"
#include <arpa/inet.h>
#include <sys/socket.h>

enum { PAIRS = 3 };

static int ends[PAIRS][2], six_listener, four_listener;

static struct sockaddr_in loopback(in_port_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static struct sockaddr_in6 mapped(in_port_t port)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = port };
	CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr) == 1);
	return to;
}

static in_port_t port_of(int file)
{
	struct sockaddr_in6 name;
	socklen_t bytes = sizeof name;
	CHECK(getsockname(file, (struct sockaddr *)&name, &bytes) == 0);
	return name.sin6_port; /* At the same place in both. */
}

static void set_up(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 };
	six_listener = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(bind(six_listener, (struct sockaddr *)&any, sizeof any) == 0 && listen(six_listener, 5) == 0);
	struct sockaddr_in to_four = loopback(port_of(six_listener));
	ends[0][0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0][0], (struct sockaddr *)&to_four, sizeof to_four) == 0);
	CHECK((ends[0][1] = accept(six_listener, NULL, NULL)) >= 0);

	struct sockaddr_in own = loopback(0);
	four_listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(four_listener, (struct sockaddr *)&own, sizeof own) == 0 && listen(four_listener, 5) == 0);
	struct sockaddr_in6 to_mapped = mapped(port_of(four_listener));
	ends[1][0] = socket(AF_INET6, SOCK_STREAM, 0);
	CHECK(connect(ends[1][0], (struct sockaddr *)&to_mapped, sizeof to_mapped) == 0);
	CHECK((ends[1][1] = accept(four_listener, NULL, NULL)) >= 0);
	/* The one pair also without its listener. */
	CHECK(close(four_listener) == 0);

	ends[2][0] = socket(AF_INET6, SOCK_DGRAM, 0), ends[2][1] = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(ends[2][1], (struct sockaddr *)&own, sizeof own) == 0);
	to_mapped = mapped(port_of(ends[2][1]));
	CHECK(connect(ends[2][0], (struct sockaddr *)&to_mapped, sizeof to_mapped) == 0);
	to_four = loopback(port_of(ends[2][0]));
	CHECK(connect(ends[2][1], (struct sockaddr *)&to_four, sizeof to_four) == 0);
	for (int pair = 0; pair < PAIRS; pair++)
		CHECK(write(ends[pair][0], "early", 5) == 5);
}

static void is_read(int file, const char *expected)
{
	char found[16] = "";
	CHECK(read(file, found, sizeof found) == (ssize_t)strlen(expected) && strcmp(found, expected) == 0);
}

static void hold(int step)
{
	for (int pair = 0; pair < PAIRS; pair++) {
		CHECK(write(ends[pair][1], "back", 4) == 4);
		is_read(ends[pair][0], "back");
	}
	say("step %d", step);
}

static void verify(void)
{
	for (int pair = 0; pair < PAIRS; pair++)
		is_read(ends[pair][1], "early");
}
