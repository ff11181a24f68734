/* Several sockets with one address: listeners of TCP by SO_REUSEPORT, one of which has cleared that behind bind, with a connection that was
 * accepted; sockets of UDP by SO_REUSEADDR, and by SO_REUSEPORT, which all of them have cleared. */
#include "victim.h"
#include <arpa/inet.h>
#include <sys/socket.h>

enum { SETS = 3, EACH = 2 };

static const int kinds[SETS] = { SOCK_STREAM, SOCK_DGRAM, SOCK_DGRAM };
static const int options[SETS] = { SO_REUSEPORT, SO_REUSEADDR, SO_REUSEPORT };
static const int cleared[SETS] = { 1, 0, 2 };
static int sockets[SETS][EACH], ends[2];
static struct sockaddr_in names[SETS];

static int option(int file, int name)
{
	int value;
	socklen_t bytes = sizeof value;
	CHECK(getsockopt(file, SOL_SOCKET, name, &value, &bytes) == 0);
	return value;
}

static void set_up(void)
{
	int yes = 1, no = 0;
	for (int set = 0; set < SETS; set++) {
		names[set] = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		for (int number = 0; number < EACH; number++) {
			int file = sockets[set][number] = socket(AF_INET, kinds[set], 0);
			socklen_t bytes = sizeof names[set];
			CHECK(setsockopt(file, SOL_SOCKET, options[set], &yes, sizeof yes) == 0);
			CHECK(bind(file, (struct sockaddr *)&names[set], bytes) == 0);
			CHECK(kinds[set] == SOCK_DGRAM || listen(file, 5) == 0);
			CHECK(getsockname(file, (struct sockaddr *)&names[set], &bytes) == 0);
		}
		for (int number = 0; number < cleared[set]; number++)
			CHECK(setsockopt(sockets[set][number], SOL_SOCKET, options[set], &no, sizeof no) == 0);
	}
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (struct sockaddr *)&names[0], sizeof names[0]) == 0);
	for (int number = 0; number < EACH && ends[1] <= 0; number++)
		ends[1] = (fcntl(sockets[0][number], F_SETFL, O_NONBLOCK), accept(sockets[0][number], NULL, NULL));
	CHECK(ends[1] > 0);
}

static void hold(int step)
{
	for (int set = 0; set < SETS; set++) {
		for (int number = 0; number < EACH; number++) {
			struct sockaddr_in name;
			socklen_t bytes = sizeof name;
			CHECK(getsockname(sockets[set][number], (struct sockaddr *)&name, &bytes) == 0);
			CHECK(name.sin_port == names[set].sin_port);
			CHECK(option(sockets[set][number], options[set]) == (number >= cleared[set]));
		}
	}
	say("step %d", step);
}

static void verify(void)
{
	char byte;
	CHECK(write(ends[0], "x", 1) == 1 && read(ends[1], &byte, 1) == 1);
	int again = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(again, (struct sockaddr *)&names[0], sizeof names[0]) == 0);
}
