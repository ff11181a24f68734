/* A program with memory that it rewrites, whole pages at a time, and that tells how long it has stood still.
 *
 *   rewriter MIB PERCENT THREADS DATA PATTERN HUGE [IDLE [MAPPINGS]]
 *
 * Each second PERCENT (it may be a fraction) of the pages are rewritten by THREADS threads, evenly over the second.
 * DATA is what is in a page: "random", "half" (every second page is one of 1024), or "zero". PATTERN is which pages:
 * "uniform" (at random) or "strided" (every hundredth). HUGE is "huge" or "small" pages. IDLE more threads wait for a
 * mutex that nobody releases, and MAPPINGS more mappings are a written page each, every second of them read-only, so
 * that no two become one. A thread of its own notes, 5000 times a second, what time it is: the longest time between
 * two notes, less what it has asked for, is how long the program stood still. Commands on stdin, answers on stdout:
 *
 *   pause   the longest standstill, ms, since the last such command; pages that were rewritten since, per second
 *   fork    how long a bare fork() of this process takes, ms, and the longest standstill of the other threads by it
 *   cost    processor time to rewrite one page, ns, since the last such command: page faults are in it, waiting is not
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
static uint64_t pages, pages_a_second, threads;
static const char *data, *pattern;
static _Atomic uint64_t longest_ns, rewritten, busy_ns, busy_pages;
static pthread_mutex_t never_released = PTHREAD_MUTEX_INITIALIZER;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
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
	uint64_t each_slice = pages_a_second / threads / SLICES, more = pages_a_second / threads % SLICES;
	struct timespec wake;
	clock_gettime(CLOCK_MONOTONIC, &wake);
	for (uint64_t slice = 0;; slice++) {
		uint64_t count = each_slice + (slice % SLICES < more), begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		for (uint64_t n = 0; n < count; n++) {
			uint64_t page = next(&state) % pages;
			if (strcmp(pattern, "strided") == 0) {
				strided += threads;
				page = strided * STRIDE % pages + strided * STRIDE / pages % STRIDE;
				page %= pages;
			}
			rewrite(page, &state);
		}
		busy_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
		busy_pages += count;
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

static void *wait_for_ever(void *argument)
{
	pthread_mutex_lock(&never_released);
	return argument;
}

static void add_idle_threads(uint64_t count)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	pthread_mutex_lock(&never_released);
	for (uint64_t number = 0; number < count; number++) {
		pthread_t thread;
		if (pthread_create(&thread, &attributes, wait_for_ever, NULL) != 0) {
			perror("idle threads");
			exit(1);
		}
	}
}

static void add_mappings(uint64_t count)
{
	if (count == 0)
		return;
	uint8_t *area = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (uint64_t page = 0; area != MAP_FAILED && page < count; page++)
		memcpy(area + page * PAGE, &page, sizeof page);
	for (uint64_t page = 0; page < count; page += 2) {
		if (area == MAP_FAILED || mprotect(area + page * PAGE, PAGE, PROT_READ) != 0) {
			perror("mappings");
			exit(1);
		}
	}
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

/* Answers a command. `since` is when "pause" was last answered. */
static void answer(const char *command, uint64_t *since)
{
	if (strcmp(command, "cost\n") == 0) {
		uint64_t ns = atomic_exchange(&busy_ns, 0), count = atomic_exchange(&busy_pages, 0);
		printf("%.1f\n", count ? (double)ns / (double)count : 0);
		return;
	}
	if (strcmp(command, "fork\n") == 0) {
		longest_ns = 0;
		double ms = fork_ms();
		printf("%.3f %.3f\n", ms, (double)longest_ns / 1e6);
	} else {
		uint64_t now = now_ns();
		printf("%.3f %.0f\n", (double)longest_ns / 1e6, (double)rewritten * 1e9 / (double)(now - *since));
		*since = now;
	}
	rewritten = 0;
	longest_ns = 0;
}

int main(int count, char **arguments)
{
	if (count < 7 || count > 9) {
		fprintf(stderr, "rewriter MIB PERCENT THREADS DATA PATTERN HUGE [IDLE [MAPPINGS]]\n");
		return 2;
	}
	pages = strtoull(arguments[1], NULL, 10) * 256;
	pages_a_second = (uint64_t)((double)pages * strtod(arguments[2], NULL) / 100 + 0.5);
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
	add_mappings(count > 8 ? strtoull(arguments[8], NULL, 10) : 0);
	add_idle_threads(count > 7 ? strtoull(arguments[7], NULL, 10) : 0);
	pthread_t thread;
	for (uint64_t number = 0; number < threads; number++)
		pthread_create(&thread, NULL, keep_rewriting, (void *)(uintptr_t)number);
	pthread_create(&thread, NULL, keep_noting, NULL);
	printf("ready\n");
	fflush(stdout);
	char command[16];
	uint64_t since = now_ns();
	while (fgets(command, sizeof command, stdin) != NULL) {
		answer(command, &since);
		fflush(stdout);
	}
	_exit(0);
}
