/* Connections of TCP on which more was written than has arrived: full in both directions, full and then shut for writing, held back for
 * larger packets (Nagle's algorithm), and corked. Each byte tells its place. An ordinary user's are not full: only root can read what waits
 * in the sender's kernel queue. */
#include "victim.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { BOTH, BOTH_BACK, SHUT, SMALL, CORKED, DIRECTIONS, CHUNK = 40000 };

static struct direction {
	int from, to;
	long written, read;
} directions[DIRECTIONS];
static int is_full;

static void connect_ends(int ends[2])
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&name, bytes) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&name, &bytes) == 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (struct sockaddr *)&name, sizeof name) == 0 && (ends[1] = accept(listener, NULL, NULL)) >= 0);
	close(listener);
}

static unsigned char byte_at(long place)
{
	return (unsigned char)(place * 2654435761u >> 13);
}

/* Writes up to so many bytes; says how many fit in. */
static long put(struct direction *way, long count)
{
	static unsigned char bytes[CHUNK];
	for (long i = 0; i < count; i++)
		bytes[i] = byte_at(way->written + i);
	ssize_t written = send(way->from, bytes, (size_t)count, MSG_DONTWAIT);
	CHECK(written > 0 || errno == EAGAIN);
	way->written += written > 0 ? written : 0;
	return written > 0 ? written : 0;
}

static void take(struct direction *way, long count)
{
	static unsigned char bytes[CHUNK];
	while (count > 0) {
		ssize_t found = recv(way->to, bytes, (size_t)(count < CHUNK ? count : CHUNK), 0);
		CHECK(found > 0);
		for (long i = 0; i < found; i++)
			if (bytes[i] != byte_at(way->read + i))
				FAIL("direction %d, byte %ld of %ld", (int)(way - directions), way->read + i, way->written);
		way->read += found, count -= found;
	}
}

static void set_up(void)
{
	int yes = 1;
	is_full = geteuid() == 0;
	for (int number = 0; number < DIRECTIONS; number++) {
		int ends[2] = { directions[BOTH].to, directions[BOTH].from };
		if (number != BOTH_BACK)
			connect_ends(ends);
		directions[number].from = ends[0], directions[number].to = ends[1];
		while (is_full && number <= SHUT && put(&directions[number], CHUNK) > 0)
			;
	}
	CHECK(shutdown(directions[SHUT].from, SHUT_WR) == 0);
	CHECK(setsockopt(directions[CORKED].from, IPPROTO_TCP, TCP_CORK, &yes, sizeof yes) == 0);
}

static void hold(int step)
{
	for (int number = 0; number < DIRECTIONS; number++) {
		struct direction *way = &directions[number];
		take(way, number == SMALL ? way->written - way->read : is_full && number < SMALL ? 1000 : 0);
		if (is_full && number == BOTH)
			put(way, CHUNK);
		/* The second waits for the acknowledgement of the first. */
		for (int part = 0; number >= SMALL && part < 3; part++)
			CHECK(put(way, 30 + step) == 30 + step);
	}
	say("step %d", step);
}

static void verify(void)
{
	char byte;
	for (int number = 0; number < DIRECTIONS; number++)
		take(&directions[number], directions[number].written - directions[number].read);
	CHECK(recv(directions[SHUT].to, &byte, 1, 0) == 0);
	CHECK(recv(directions[BOTH].to, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	put(&directions[BOTH], 1000), take(&directions[BOTH], 1000);
}
