/* Keeps more and more of its mappings out of dumps, one in each 0.1 ms, and finds in each step that the kernel has all of these
 * flags, and no others. */
#include "victim.h"
#include <stdatomic.h>
#include <sys/mman.h>

#define BASE 0x540000000000ul

enum { PAGE = 4096, MAPPINGS = 16000 };

static _Atomic int advised;

static void *address_of(int mapping)
{
	return (void *)(BASE + (uintptr_t)mapping * PAGE);
}

static void *keep_advising(void *argument)
{
	for (int next = 0; next < MAPPINGS; next++) {
		CHECK(madvise(address_of(next), PAGE, MADV_DONTDUMP) == 0);
		advised = next + 1;
		usleep(100);
	}
	return argument;
}

static void set_up(void)
{
	/* Different rights, so that they stay apart. */
	for (int next = 0; next < MAPPINGS; next++) {
		int rights = next % 2 == 0 ? PROT_READ | PROT_WRITE : PROT_READ, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
		CHECK(mmap(address_of(next), PAGE, rights, flags, -1, 0) == address_of(next));
	}
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, keep_advising, NULL) == 0);
}

/* The first mapping whose flag is not as it has to be; none is MAPPINGS, and -1 that not all were shown. */
static int first_wrong(void)
{
	int before = advised, known = 0, current = -1, wrong = MAPPINGS;
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file) != NULL) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			current = start < BASE ? -1 : (int)((start - BASE) / PAGE);
		if (strncmp(line, "VmFlags:", 8) == 0 && current >= 0 && current < MAPPINGS) {
			int is_advised = strstr(line, " dd") != NULL;
			/* One may have been advised, and not be counted yet. */
			if (wrong == MAPPINGS && (current < before ? !is_advised : is_advised && current > advised))
				wrong = current;
			known++;
		}
	}
	CHECK(fclose(file) == 0);
	return known == MAPPINGS ? wrong : -1;
}

static void hold(int step)
{
	/* A restart in the middle of such a file finds it somewhere else. */
	int wrong = first_wrong();
	if (wrong != MAPPINGS && (wrong = first_wrong()) != MAPPINGS)
		FAIL("mapping %d, where %d have the flag", wrong, advised);
	say("step %d", step);
}

static void verify(void)
{
}
