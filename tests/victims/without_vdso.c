/* A program that has unmapped the vdso: its clock is asked by system calls. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int maps_it(unsigned long *from, unsigned long *to)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps != NULL);
	while (!found && fgets(line, sizeof line, maps) != NULL)
		found = (strstr(line, "[vdso]") || strstr(line, "[vvar")) && sscanf(line, "%lx-%lx", from, to) == 2;
	fclose(maps);
	return found;
}

static void set_up(void)
{
	unsigned long from, to;
	while (maps_it(&from, &to))
		CHECK(munmap((void *)from, to - from) == 0);
}

static void hold(int step)
{
	struct timespec now;
	CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0);
	say("step %d", step);
}

static void verify(void)
{
}
