/* Regions at known addresses, changed in known pages. Each step but the first waits for SIGUSR2 before it changes
 * anything, so that a test can have a checkpoint on either side. Step 2 changes pages 3 and 40 of the loud region,
 * fills page 5 and empties page 7; makes the growing one longer; maps a new region and unmaps an old one. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096
#define PAGES 64
/* Holes between the regions keep the kernel from joining them. */
#define PLACE(number) ((unsigned char *)0x510000000000 + (size_t)(number) * 1024 * PAGE)

static unsigned char *const loud = PLACE(0), *const quiet = PLACE(1), *const growing = PLACE(2);
static unsigned char *const old = PLACE(3), *const new = PLACE(4);

static void map(unsigned char *place, size_t pages)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	CHECK(mmap(place, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == place);
}

static void fill(unsigned char *place, size_t first, size_t pages, uint64_t seed)
{
	uint64_t *words = (uint64_t *)(place + first * PAGE);
	for (size_t i = 0; i < pages * PAGE / 8; i++)
		words[i] = mix(seed + i);
}

static void set_up(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	unsigned char *places[] = { loud, quiet, growing, old };
	for (size_t i = 0; i < 4; i++) {
		map(places[i], PAGES);
		fill(places[i], 0, PAGES, i << 32);
	}
	memset(loud + 5 * PAGE, 0, PAGE);
}

static void change(void)
{
	loud[3 * PAGE + 17] ^= 1;
	fill(loud, 40, 1, 99);
	fill(loud, 5, 1, 77);
	memset(loud + 7 * PAGE, 0, PAGE);
	CHECK(mremap(growing, PAGES * PAGE, 2 * PAGES * PAGE, 0) == growing);
	fill(growing, PAGES, 2, 55);
	map(new, PAGES);
	fill(new, 10, 3, 33);
	CHECK(munmap(old, PAGES * PAGE) == 0);
}

static void hold(int step)
{
	if (step > 1) {
		sigset_t set;
		int signal;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR2);
		CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR2);
	}
	if (step == 2)
		change();
	say("step %d", step);
}

static void verify(void)
{
	say("sum %016lx", sum_of(quiet, PAGES * PAGE));
}
