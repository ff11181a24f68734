/* All of its memory is new in every step: 24 MiB, of which no page is as it was. */
#include "victim.h"
#include <sys/mman.h>

enum { WORDS = 24 << 17 };

static uint64_t *memory;

static void fill(int step)
{
	for (uint64_t i = 0; i < WORDS; i++)
		memory[i] = mix((uint64_t)step << 32 | i);
}

static void set_up(void)
{
	memory = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	fill(0);
}

static void hold(int step)
{
	for (uint64_t i = 0; i < WORDS; i += 499)
		CHECK(memory[i] == mix((uint64_t)(step - 1) << 32 | i));
	fill(step);
	say("step %d %016lx", step, memory[step]);
}

static void verify(void)
{
	say("sum %016lx", sum_of(memory, WORDS * 8));
}
