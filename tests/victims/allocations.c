/* Large allocations of known sizes, from functions of known names. Each step but the first waits for SIGUSR2: the second
 * lets one grow, frees one and makes a new one. */
#include "victim.h"
#include <signal.h>

static char *grid, *table, *fleeting;

static __attribute__((noinline)) void allocate_grid(void)
{
	CHECK(grid = calloc(1000, 5000));
	grid[4999999] = 7;
}

static __attribute__((noinline)) void size_table(size_t bytes)
{
	CHECK(table = realloc(table, bytes));
	memset(table, 9, bytes);
}

static __attribute__((noinline)) void replace_fleeting(size_t bytes)
{
	free(fleeting);
	CHECK(fleeting = malloc(bytes));
	memset(fleeting, 11, bytes);
}

static void set_up(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	allocate_grid();
	size_table(100000);
	replace_fleeting(70000);
	CHECK(malloc(65535));
}

static void hold(int step)
{
	sigset_t set;
	int number;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	if (step > 1)
		CHECK(sigwait(&set, &number) == 0);
	if (step == 2) {
		size_table(30000000);
		replace_fleeting(80000);
	}
	say("step %d", step);
}

static void verify(void)
{
	CHECK(grid[4999999] == 7 && grid[0] == 0);
	CHECK(table[0] == 9 && table[29999999] == 9 && fleeting[79999] == 11);
}
