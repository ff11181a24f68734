/* Guards (MADV_GUARD_INSTALL, Linux 6.15) in mappings of files and of shared memory: what is behind them is there still, and another mapping
 * shows it. Before and behind each there are pages that can be read. */
#include "victim.h"
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
enum { MADV_GUARD_INSTALL = 102, MADV_GUARD_REMOVE = 103 };
#endif
enum { PAGE = 4096, PAGES = 16, FIRST = 5, COUNT = 3 };
enum { ANONYMOUS, MEMORY, SHARED, PRIVATE, READ_ONLY, ALL };

static unsigned char *maps[ALL], *other;
static int somewhere[2];

static unsigned char byte_of(int page, int is_file)
{
	return (unsigned char)(page * 7 + (is_file ? 100 : 1));
}

static void fill(unsigned char *at, int is_file)
{
	for (int page = 0; page < PAGES; page++)
		memset(at + page * PAGE, byte_of(page, is_file), PAGE);
}

static unsigned char *map(int rights, int flags, int file)
{
	unsigned char *at = mmap(NULL, PAGES * PAGE, rights, flags, file, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static int file_of(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	unsigned char *at = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
	fill(at, 1);
	munmap(at, PAGES * PAGE);
	return file;
}

static void set_up(void)
{
	int both = PROT_READ | PROT_WRITE, memory = memfd_create("guarded", 0), file = file_of("shared"), input = file_of("input");
	CHECK(memory >= 0 && ftruncate(memory, PAGES * PAGE) == 0 && pipe(somewhere) == 0);
	maps[ANONYMOUS] = map(both, MAP_SHARED | MAP_ANONYMOUS, -1);
	maps[MEMORY] = map(both, MAP_SHARED, memory), other = map(both, MAP_SHARED, memory);
	maps[SHARED] = map(both, MAP_SHARED, file);
	maps[PRIVATE] = map(both, MAP_PRIVATE, input);
	maps[READ_ONLY] = map(PROT_READ, MAP_SHARED, input);
	close(memory), close(file), close(input);
	fill(maps[ANONYMOUS], 0), fill(maps[MEMORY], 0);
	/* One of its own behind the guard, which goes, and one that stays. */
	maps[PRIVATE][FIRST * PAGE] = 0, maps[PRIVATE][9 * PAGE + 1] = 0;
	for (int each = 0; each < ALL; each++)
		if (madvise(maps[each] + FIRST * PAGE, COUNT * PAGE, MADV_GUARD_INSTALL) != 0) {
			say("skipped: no guards in mappings of files in this kernel");
			exit(EXIT_SKIPPED);
		}
}

static void compare(int each, int page, int is_guard)
{
	unsigned char found;
	ssize_t written = write(somewhere[1], maps[each] + page * PAGE, 1);
	if (is_guard) {
		if (written != -1 || errno != EFAULT)
			FAIL("page %d of mapping %d is no guard", page, each);
		return;
	}
	CHECK(written == 1 && read(somewhere[0], &found, 1) == 1);
	if (found != byte_of(page, each >= SHARED))
		FAIL("page %d of mapping %d has %d", page, each, found);
}

static void hold(int step)
{
	for (int each = 0; each < ALL; each++)
		for (int page = 0; page < PAGES; page++)
			compare(each, page, page >= FIRST && page < FIRST + COUNT);
	CHECK(other[FIRST * PAGE] == byte_of(FIRST, 0) && maps[PRIVATE][9 * PAGE + 1] == 0);
	say("step %d", step);
}

static void verify(void)
{
	for (int each = 0; each < ALL; each++) {
		CHECK(madvise(maps[each] + FIRST * PAGE, COUNT * PAGE, MADV_GUARD_REMOVE) == 0);
		for (int page = 0; page < PAGES; page++)
			compare(each, page, 0);
	}
}
