/* Maps the large file "data" privately, with pages of its own in it, and shared, to be read alone. Each step reads a page of each, changes
 * one of its own, and prints what it has found. With KIND "open" the file stays open for writing. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { PAGE = 4096, OWN = 5, STRIDE = 977 };

static unsigned char *private, *shared;
static size_t pages;

static void set_up(void)
{
	step_ms = 20;
	struct stat about;
	int fd = open("data", strcmp(kind, "open") == 0 ? O_RDWR : O_RDONLY), to_read = open("data", O_RDONLY);
	CHECK(fd >= 0 && to_read >= 0 && fstat(fd, &about) == 0);
	pages = (size_t)about.st_size / PAGE;
	private = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	shared = mmap(NULL, pages * PAGE, PROT_READ, MAP_SHARED, to_read, 0);
	CHECK(private != MAP_FAILED && shared != MAP_FAILED);
	close(to_read);
	if (strcmp(kind, "open") != 0)
		close(fd);
	memset(private + OWN * PAGE, 0, PAGE);
}

static void hold(int step)
{
	size_t page = (size_t)step * STRIDE % pages;
	if (page == OWN)
		page++;
	private[OWN * PAGE]++;
	say("%d %d %016lx %016lx", step, private[OWN * PAGE], sum_of(private + page * PAGE, PAGE),
	    sum_of(shared + page * PAGE, PAGE));
}

static void verify(void)
{
	uint64_t sum = 0;
	for (size_t page = 0; page < pages; page++)
		sum ^= page == OWN ? 0 : mix(sum_of(private + page * PAGE, PAGE) + page);
	say("private %016lx shared %016lx", sum, sum_of(shared, pages * PAGE));
}
