/* A program with memory that it rewrites, whole pages at a time, and that tells how long it has stood still.
 *
 *   rewriter MIB PERCENT THREADS DATA PATTERN HUGE
 *
 * Each second PERCENT of the pages are rewritten by THREADS threads, evenly over the second. DATA is what is in a page: "random",
 * "half" (every second page is one of 1024), or "zero". PATTERN is which pages: "uniform" (at random) or "strided" (every
 * hundredth). HUGE is "huge" or "small" pages. A thread of its own notes, 5000 times a second, what time it is: the longest time
 * between two notes, less what it has asked for, is how long the program stood still. Commands on stdin, answers on stdout:
 *
 *   pause   the longest standstill, ms, since the last such command; pages that were rewritten since, per second
 *   fork    how long a bare fork() of this process takes, ms, and the longest standstill of the other threads by it
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, NOTE_NS = 200000, FEW = 1024, STRIDE = 100, SLICES = 1000 };

static uint8_t *memory;
static uint64_t pages, percent, threads;
static const char *data, *pattern;
static _Atomic uint64_t longest_ns, rewritten;

static uint64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void rewrite(uint64_t page, uint64_t *state)
{
	uint64_t *words = (uint64_t *)(void *)(memory + page * PAGE);
	/* Multiplied, or each page would be the one before, shifted by a word, and compress well. */
	uint64_t content = next(state) * 0x9e3779b97f4a7c15u | 1;
	if (strcmp(data, "zero") == 0) {
		memset(words, 0, PAGE);
		return;
	}
	if (strcmp(data, "half") == 0 && page % 2 == 0)
		content = 1 + content % FEW;
	for (int word = 0; word < PAGE / 8; word++)
		words[word] = next(&content);
}

static void *keep_rewriting(void *argument)
{
	uint64_t number = (uint64_t)(uintptr_t)argument, state = 88172645463325252u + number * 7919, strided = number;
	uint64_t each_slice = pages * percent / 100 / threads / SLICES, more = pages * percent / 100 / threads % SLICES;
	struct timespec wake;
	clock_gettime(CLOCK_MONOTONIC, &wake);
	for (uint64_t slice = 0;; slice++) {
		uint64_t count = each_slice + (slice % SLICES < more);
		for (uint64_t n = 0; n < count; n++) {
			uint64_t page = next(&state) % pages;
			if (strcmp(pattern, "strided") == 0) {
				strided += threads;
				page = strided * STRIDE % pages + strided * STRIDE / pages % STRIDE;
				page %= pages;
			}
			rewrite(page, &state);
		}
		rewritten += count;
		wake.tv_nsec += 1000000000 / SLICES;
		if (wake.tv_nsec >= 1000000000) {
			wake.tv_nsec -= 1000000000;
			wake.tv_sec++;
		}
		/* What was missed while it stood still is not made up for. */
		struct timespec time;
		clock_gettime(CLOCK_MONOTONIC, &time);
		if (time.tv_sec > wake.tv_sec || (time.tv_sec == wake.tv_sec && time.tv_nsec > wake.tv_nsec))
			wake = time;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
	}
	return argument;
}

static void *keep_noting(void *argument)
{
	struct timespec pause = { 0, NOTE_NS };
	for (uint64_t last = now_ns();;) {
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		uint64_t now = now_ns(), still = now - last > NOTE_NS ? now - last - NOTE_NS : 0;
		if (still > longest_ns)
			longest_ns = still;
		last = now;
	}
	return argument;
}

static double fork_ms(void)
{
	uint64_t begun = now_ns();
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	double ms = (double)(now_ns() - begun) / 1e6;
	waitpid(child, NULL, 0);
	return ms;
}

int main(int count, char **arguments)
{
	if (count != 7) {
		fprintf(stderr, "rewriter MIB PERCENT THREADS DATA PATTERN HUGE\n");
		return 2;
	}
	pages = strtoull(arguments[1], NULL, 10) * 256;
	percent = strtoull(arguments[2], NULL, 10);
	threads = strtoull(arguments[3], NULL, 10);
	data = arguments[4];
	pattern = arguments[5];
	int advice = strcmp(arguments[6], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, pages * PAGE, advice) != 0) {
		perror("memory");
		return 1;
	}
	uint64_t state = 2463534242;
	for (uint64_t page = 0; page < pages; page++)
		rewrite(page, &state);
	pthread_t thread;
	for (uint64_t number = 0; number < threads; number++)
		pthread_create(&thread, NULL, keep_rewriting, (void *)(uintptr_t)number);
	pthread_create(&thread, NULL, keep_noting, NULL);
	printf("ready\n");
	fflush(stdout);
	char command[16];
	uint64_t since = now_ns();
	while (fgets(command, sizeof command, stdin) != NULL) {
		if (strcmp(command, "fork\n") == 0) {
			longest_ns = 0;
			double ms = fork_ms();
			printf("%.3f %.3f\n", ms, (double)longest_ns / 1e6);
		} else {
			uint64_t now = now_ns();
			double rate = (double)rewritten * 1e9 / (double)(now - since);
			printf("%.3f %.0f\n", (double)longest_ns / 1e6, rate);
			since = now;
		}
		rewritten = 0;
		longest_ns = 0;
		fflush(stdout);
	}
	_exit(0);
}
