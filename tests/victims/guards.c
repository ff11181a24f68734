/* Guards in memory (MADV_GUARD_INSTALL, Linux 6.13), as newer C libraries have them below the stacks of threads: some that stay, and
 * some that come and go at each step, over pages that were there and over others. Whether there is one is asked by a system
 * call that reads from it. */
#include "victim.h"
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
enum { MADV_GUARD_INSTALL = 102, MADV_GUARD_REMOVE = 103 };
#endif
enum { PAGE = 4096, PAGES = 1024 };

static unsigned char *memory;
static int somewhere[2];
/* 0: not touched yet, 255: a guard, other: what is in the page. */
static unsigned char expected[PAGES];

static void fill(size_t page, unsigned char value)
{
	memset(memory + page * PAGE, value, PAGE);
	expected[page] = value;
}

static void guard(size_t first, size_t count)
{
	CHECK(madvise(memory + first * PAGE, count * PAGE, MADV_GUARD_INSTALL) == 0);
	memset(expected + first, 255, count);
}

static void unguard(size_t first, size_t count)
{
	CHECK(madvise(memory + first * PAGE, count * PAGE, MADV_GUARD_REMOVE) == 0);
	for (size_t page = first; page < first + count; page++)
		if (expected[page] == 255)
			expected[page] = 0;
}

static void compare(void)
{
	unsigned char content[PAGE], wanted[PAGE];
	for (size_t page = 0; page < PAGES; page++) {
		ssize_t written = write(somewhere[1], memory + page * PAGE, PAGE);
		if (expected[page] == 255) {
			if (written != -1 || errno != EFAULT)
				FAIL("page %zu is no guard", page);
			continue;
		}
		CHECK(written == PAGE && read(somewhere[0], content, PAGE) == PAGE);
		memset(wanted, expected[page], PAGE);
		if (memcmp(content, wanted, PAGE) != 0)
			FAIL("page %zu has not %d", page, expected[page]);
	}
}

static void set_up(void)
{
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED && pipe(somewhere) == 0);
	if (madvise(memory, PAGE, MADV_GUARD_INSTALL) != 0) {
		say("skipped: no guards in this kernel");
		exit(EXIT_SKIPPED);
	}
	guard(0, 1);
	for (size_t page = 1; page < PAGES / 2; page++)
		fill(page, (unsigned char)(page % 200 + 1));
	guard(100, 7);
	guard(PAGES - 10, 10);
}

static void hold(int step)
{
	size_t place = 200 + (size_t)step % 100;
	unguard(place - 1, 3);
	guard(place, 2);
	guard(600 + (size_t)step % 100, 1);
	fill(110 + (size_t)step % 80, (unsigned char)(step % 100 + 1));
	compare();
	say("step %d", step);
}

static void verify(void)
{
	compare();
	unguard(0, PAGES);
	compare();
	fill(PAGES - 1, 7);
	compare();
}
