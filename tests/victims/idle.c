/* Much memory and little to do. KIND: "random" 256 MiB, all different; "zero" 256 MiB of touched zeros;
 * "twice" the same 64 MiB at two places; "rewritten" 64 MiB, all different, and each step writes what is there into each
 * page; "rewritten-later" the same with 256 MiB, once there is a file "later". Each step of the others changes one page. */
#include "victim.h"
#include <sys/mman.h>

static unsigned char *memory;
static size_t bytes = (size_t)256 << 20;

static void set_up(void)
{
	size_t different = bytes;
	if (strcmp(kind, "twice") == 0) {
		bytes = (size_t)128 << 20;
		different = bytes / 2;
	}
	if (strcmp(kind, "rewritten") == 0)
		different = bytes = (size_t)64 << 20;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	if (strcmp(kind, "zero") == 0) {
		memset(memory, 0, bytes);
		return;
	}
	uint64_t *words = (uint64_t *)memory;
	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = mix(i % (different / 8));
}

static void hold(int step)
{
	size_t page = (size_t)step * 7919 % (bytes / 4096);
	int later = strcmp(kind, "rewritten-later") == 0 && access("later", F_OK) == 0;
	if (later || strcmp(kind, "rewritten") == 0) {
		for (volatile unsigned char *at = memory; at < memory + bytes; at += 4096)
			*at = *at;
	} else {
		memory[page * 4096 + 100] ^= (unsigned char)step;
	}
	say("step %d", step);
}

static void verify(void)
{
	say("sum %016lx", sum_of(memory, bytes));
}
