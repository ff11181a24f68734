/* The skeleton of every victim: set up, say "ready", hold through numbered steps, verify, end.
 *
 * A victim defines set_up(), hold(step) and verify(). Each step checks what can be checked without using it up
 * and prints one line, so a test can choose its moment; verify() uses up what is left (pending signals, unread
 * data). Output is deterministic: two runs of a victim print the same bytes. Arguments: [STEPS [KIND]].
 */
#ifndef VICTIM_H
#define VICTIM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_VERIFIED = 7, EXIT_SKIPPED = 77 };

static void set_up(void);
static void hold(int step);
static void verify(void);

static int steps = 60;
static int step_ms = 10;
static const char *kind = "";
/* Where lines go; no_fds.c has no stdout and puts its own in here. */
static void (*put_line)(const char *line, size_t bytes);

static inline void put_on_stdout(const char *line, size_t bytes)
{
	while (bytes > 0) {
		ssize_t written = write(STDOUT_FILENO, line, bytes);
		if (written < 0 && errno != EINTR)
			_exit(3);
		if (written > 0) {
			line += written;
			bytes -= (size_t)written;
		}
	}
}

__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
	char line[1024];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	line[length++] = '\n';
	put_line(line, (size_t)length);
}

#define FAIL(...)                        \
	do {                             \
		say("FAILED: " __VA_ARGS__); \
		_exit(1);                \
	} while (0)

#define CHECK(condition)                                                                                 \
	do {                                                                                             \
		if (!(condition))                                                                        \
			FAIL("%s:%d: %s (errno %d)", __FILE_NAME__, __LINE__, #condition, errno); \
	} while (0)

/* What a refusal must mention: an address, or else a number. */
static inline void say_what_is_held(const void *place, int number)
{
	if (place != NULL)
		say("holds %s %p", kind, place);
	else
		say("holds %s %d", kind, number);
}

/* Sleeps whole, whatever interrupts it. */
static inline void sleep_ms(int ms)
{
	struct timespec left = { ms / 1000, ms % 1000 * 1000000L };
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

/* A sequence that each victim uses to fill and to check memory. */
static inline uint64_t mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

static inline uint64_t sum_of(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;
	uint64_t sum = 0xcbf29ce484222325u;
	for (; bytes >= 8; at += 8, bytes -= 8) {
		uint64_t word;
		memcpy(&word, at, 8);
		sum = (sum ^ word) * 0x100000001b3u;
	}
	for (; bytes > 0; at++, bytes--)
		sum = (sum ^ *at) * 0x100000001b3u;
	return sum;
}

int main(int argc, char **argv)
{
	if (put_line == NULL)
		put_line = put_on_stdout;
	if (argc > 1)
		steps = atoi(argv[1]);
	if (argc > 2)
		kind = argv[2];
	set_up();
	say("ready");
	/* A test that wants something to happen before the end says where to wait for it. */
	const char *place = getenv("CKPT_VICTIM_WAITS_AT"), *sign = getenv("CKPT_VICTIM_WAITS_FOR");
	int wait_at = place != NULL && sign != NULL ? atoi(place) : 0;
	for (int step = 1; step <= steps; step++) {
		hold(step);
		while (step == wait_at && access(sign, F_OK) != 0)
			sleep_ms(1);
		if (step_ms > 0)
			sleep_ms(step_ms);
	}
	verify();
	say("verified");
	return EXIT_VERIFIED;
}
#endif
