/* Allocations whose content follows from the step (tests/suites/data.rs has the same formulas). Each step but the first
 * waits for SIGUSR2. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>

enum { WORDS = 1 << 21, ODD = 70001, PAGE = 4096, GONE_FROM = 100, GONE_TO = 200, KEPT_BACK = 64 * PAGE };

static uint32_t *grid;
static unsigned char *odd, *table, *kept_back;

static uint32_t first(uint32_t word)
{
	return word * 2654435761u;
}

static void change_grid(uint32_t step)
{
	for (uint32_t n = 0; n < 50; n++)
		grid[(step * 7919u + n * 104729u) % WORDS] = step * 1000 + n;
}

/* Whole pages of the grid become zero without being written. */
static void drop_pages(void)
{
	uintptr_t start = ((uintptr_t)grid + PAGE - 1) / PAGE * PAGE + GONE_FROM * PAGE;
	CHECK(madvise((void *)start, (GONE_TO - GONE_FROM) * PAGE, MADV_DONTNEED) == 0);
}

static void fill_odd(int step)
{
	for (int n = 0; n < ODD; n++)
		odd[n] = (unsigned char)(n * 31 + step);
}

static void set_up(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(grid = malloc(WORDS * sizeof *grid));
	for (uint32_t word = 0; word < WORDS; word++)
		grid[word] = first(word);
	CHECK(odd = malloc(ODD));
	CHECK(table = malloc(100000));
	memset(table, 9, 100000);
	void *place;
	CHECK(posix_memalign(&place, PAGE, KEPT_BACK) == 0);
	kept_back = place;
	CHECK(madvise(kept_back, KEPT_BACK, MADV_DONTFORK) == 0);
	memset(kept_back, 5, KEPT_BACK);
}

static void hold(int step)
{
	sigset_t set;
	int number;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	if (step > 1) {
		CHECK(sigwait(&set, &number) == 0);
		change_grid((uint32_t)step);
	}
	fill_odd(step);
	if (step == 3) {
		CHECK(table = realloc(table, 3000000));
		memset(table, 8, 3000000);
	}
	if (step == 4)
		drop_pages();
	if (step == 5) {
		free(table);
		table = NULL;
	}
	/* What the victim itself sees, for a life that went on from a checkpoint. */
	uint64_t sum = 0;
	for (uint32_t word = 0; word < WORDS; word++)
		sum = sum * 31 + grid[word];
	say("step %d grid %016lx odd %d table %d", step, sum, odd[ODD - 1], table ? table[99999] : -1);
}

static void verify(void)
{
	CHECK(kept_back[KEPT_BACK - 1] == 5);
}
