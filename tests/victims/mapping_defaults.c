/* What a program decides for mappings that it will make: locked in memory at once (KIND "at_once") or when they are touched
 * ("on_fault"), without transparent huge pages, equal pages merged. Each step makes a mapping and says what it is like. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/prctl.h>

enum { PAGE = 4096 };
enum { SET_THP_DISABLE = 41, GET_THP_DISABLE = 42, EXCEPT_ADVISED = 2, SET_MEMORY_MERGE = 67, GET_MEMORY_MERGE = 68 };

static unsigned char *sparse;

/* The flags of the mapping at `address` that are about locks and merging. */
static void flags_of(const void *address, char *found)
{
	static char line[1024];
	unsigned long start, end, wanted = (unsigned long)address;
	int inside = 0;
	FILE *file = fopen("/proc/self/smaps", "r");
	CHECK(file != NULL);
	*found = 0;
	while (fgets(line, sizeof line, file) != NULL) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start <= wanted && wanted < end;
		if (!inside || strncmp(line, "VmFlags:", 8) != 0)
			continue;
		for (char *flag = strtok(line + 8, " "); flag; flag = strtok(NULL, " "))
			if (strcmp(flag, "lo") == 0 || strcmp(flag, "lf") == 0 || strcmp(flag, "mg") == 0)
				strcat(strcat(found, " "), flag);
	}
	fclose(file);
}

static void *map(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

/* Pages of a mapping that nobody need have touched. */
static int resident(void *at, int pages)
{
	unsigned char present[64];
	int count = 0;
	CHECK(mincore(at, (size_t)pages * PAGE, present) == 0);
	for (int page = 0; page < pages; page++)
		count += present[page] & 1;
	return count;
}

static void set_up(void)
{
	int on_fault = strcmp(kind, "on_fault") == 0;
	if (prctl(SET_THP_DISABLE, 1, on_fault ? EXCEPT_ADVISED : 0, 0, 0) != 0)
		CHECK(errno == EINVAL && prctl(SET_THP_DISABLE, 1, 0, 0, 0) == 0);
	if (prctl(SET_MEMORY_MERGE, 1, 0, 0, 0) != 0)
		CHECK(errno == EINVAL || errno == EPERM);
	sparse = map(64 * PAGE);
	if (mlockall(MCL_FUTURE | (on_fault ? MCL_ONFAULT : 0)) != 0) {
		say("skipped: memory may not be locked");
		_exit(EXIT_SKIPPED);
	}
	/* Locked by itself, so that its other pages are not brought in. */
	CHECK(mlock2(sparse, 64 * PAGE, MLOCK_ONFAULT) == 0);
	sparse[5 * PAGE] = sparse[50 * PAGE] = 1;
}

static void hold(int step)
{
	char new_flags[16], sparse_flags[16];
	unsigned char *page = map(16 * PAGE);
	flags_of(page, new_flags);
	flags_of(sparse, sparse_flags);
	say("step %d new%s %d of 16, sparse%s %d of 64, huge pages disabled %d, merged %d", step, new_flags,
	    resident(page, 16), sparse_flags, resident(sparse, 64), prctl(GET_THP_DISABLE, 0, 0, 0, 0),
	    prctl(GET_MEMORY_MERGE, 0, 0, 0, 0));
	CHECK(munmap(page, 16 * PAGE) == 0);
}

static void verify(void)
{
	CHECK(munlockall() == 0);
}
