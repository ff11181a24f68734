/* Two halves of one mapping. When there is a file "apart", the second one is moved away, and when there is a file "together", back;
 * "is-apart" and "is-together" say that it has been. Each step writes to pages of both, and compares all of them. */
#include "victim.h"
#include <sys/mman.h>

enum { PAGE = 4096, WORDS = PAGE / 8, HALF = 16 };

static uint64_t *home, *second, *place_away;
static uint64_t expected[2 * HALF];
static int is_apart, is_over;

static uint64_t *page_at(int page)
{
	return page < HALF ? home + page * WORDS : second + (page - HALF) * WORDS;
}

static void move(uint64_t *to, const char *sign)
{
	CHECK(mremap(second, HALF * PAGE, HALF * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	second = to;
	CHECK(close(open(sign, O_CREAT | O_WRONLY, 0600)) == 0);
}

static void set_up(void)
{
	int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	home = mmap((void *)0x530000000000, 2 * HALF * PAGE, protection, flags, -1, 0);
	place_away = mmap((void *)0x540000000000, HALF * PAGE, protection, flags, -1, 0);
	CHECK(home != MAP_FAILED && place_away != MAP_FAILED);
	second = home + HALF * WORDS;
	for (int page = 0; page < 2 * HALF; page++)
		*page_at(page) = expected[page] = mix((uint64_t)page);
}

static void hold(int step)
{
	if (!is_apart && !is_over && access("apart", F_OK) == 0) {
		move(place_away, "is-apart");
		is_apart = 1;
	}
	if (is_apart && access("together", F_OK) == 0) {
		move(home + HALF * WORDS, "is-together");
		is_apart = 0;
		is_over = 1;
	}
	for (int page = 0; page < 2 * HALF; page++) {
		if (*page_at(page) != expected[page])
			FAIL("page %d is not as it was left", page);
		/* A quarter of them in each step. */
		if (page % 4 == step % 4)
			*page_at(page) = expected[page] = mix(expected[page] + (uint64_t)step);
	}
	say("step %d", step);
}

static void verify(void)
{
}
