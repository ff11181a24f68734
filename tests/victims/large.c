/* An ordinary program: all it has is one large allocation of the C library's (64 MiB), in which each step changes every page and says
 * the sum of all. KIND "threads": two threads wait meanwhile, each with an allocation of such a size before its thread was made. */
#include "victim.h"

enum { BYTES = 64 << 20, PAGE = 4096 };

static unsigned char *memory;
static unsigned char *of_threads[2];

__attribute__((noreturn)) static void *wait_for_ever(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

static unsigned char *filled(uint64_t seed)
{
	uint64_t *words = malloc(BYTES);
	CHECK(words != NULL);
	for (size_t at = 0; at < BYTES / 8; at++)
		words[at] = mix(at + seed);
	return (unsigned char *)words;
}

static void set_up(void)
{
	memory = filled(1);
	if (strcmp(kind, "threads") != 0)
		return;
	for (int number = 0; number < 2; number++) {
		pthread_t thread;
		of_threads[number] = filled(1000 + (uint64_t)number);
		CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
	}
}

static void hold(int step)
{
	uint64_t sum = 0;
	for (size_t at = (size_t)step % PAGE; at < BYTES; at += PAGE) {
		memory[at] += (unsigned char)step;
		sum = mix(sum + memory[at]);
	}
	say("step %d %016lx", step, sum);
}

static void verify(void)
{
	say("sum %016lx", sum_of(memory, BYTES));
	for (int number = 0; number < 2 && of_threads[number] != NULL; number++)
		say("of thread %d %016lx", number, sum_of(of_threads[number], BYTES));
}
