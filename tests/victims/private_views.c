/* Private mappings of files that the program itself writes otherwise: a page that it has written through the mapping is its own, all others show
 * what is in the file by now. Files on disk (written through a shared mapping; through a descriptor), one that has been deleted, memory
 * files (mapped twice; open; both), one in /dev/shm, and shared anonymous memory where it can be opened. */
#include "victim.h"
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 8, VIEWS_MAX = 8, OWN = 0, WRITTEN = 2, LATER = 5 };

struct view {
	const char *name;
	unsigned char *shown, *shared;
	int fd;
};

static struct view views[VIEWS_MAX];
static int view_count;

static void *map(int flags, int fd)
{
	void *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

static void put(struct view *view, int page, unsigned char byte)
{
	if (view->shared != NULL)
		view->shared[page * PAGE] = byte;
	else
		CHECK(pwrite(view->fd, &byte, 1, page * PAGE) == 1);
}

/* Through a shared mapping, or a descriptor, or both. */
static void view(const char *name, int fd, int is_mapped, int stays_open)
{
	struct view *new = &views[view_count++];
	CHECK(fd >= 0 && view_count <= VIEWS_MAX && ftruncate(fd, PAGES * PAGE) == 0);
	*new = (struct view){ name, map(MAP_PRIVATE, fd), is_mapped ? map(MAP_SHARED, fd) : NULL, stays_open ? fd : -1 };
	put(new, OWN, 1);
	put(new, WRITTEN, 11);
	new->shown[OWN * PAGE] = 22;
	if (!stays_open)
		close(fd);
}

static void set_up(void)
{
	view("mapped", open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600), 1, 0);
	view("open", open("open", O_RDWR | O_CREAT | O_TRUNC, 0600), 0, 1);
	view("deleted", open("deleted", O_RDWR | O_CREAT | O_TRUNC, 0600), 1, 1);
	CHECK(unlink("deleted") == 0);
	view("memory, mapped", memfd_create("one", 0), 1, 0);
	view("memory, open", memfd_create("two", 0), 0, 1);
	view("memory, both", memfd_create("three", 0), 1, 1);
	char path[64];
	snprintf(path, sizeof path, "/dev/shm/private_views.%d", getpid());
	view("in /dev/shm", open(path, O_RDWR | O_CREAT | O_EXCL, 0600), 1, 1);
	CHECK(unlink(path) == 0);
	unsigned char *anonymous = map(MAP_SHARED | MAP_ANONYMOUS, -1);
	snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", (long)anonymous, (long)anonymous + PAGES * PAGE);
	int fd = open(path, O_RDWR);
	if (fd >= 0) {
		/* By root alone. */
		view("anonymous", fd, 1, 0);
		munmap(anonymous, PAGES * PAGE);
	}
}

static void hold(int step)
{
	for (struct view *view = views; view < views + view_count; view++) {
		unsigned char *shown = view->shown, before = step == 1 ? 0 : (unsigned char)(step - 1);
		if (shown[OWN * PAGE] != 22 || shown[WRITTEN * PAGE] != (step == 1 ? 11 : before) || shown[LATER * PAGE] != before)
			FAIL("step %d: %s shows %d %d %d", step, view->name, shown[OWN * PAGE], shown[WRITTEN * PAGE], shown[LATER * PAGE]);
		put(view, WRITTEN, (unsigned char)step);
		put(view, LATER, (unsigned char)step);
	}
	say("step %d", step);
}

static void verify(void)
{
	for (struct view *view = views; view < views + view_count; view++) {
		put(view, OWN, 33);
		CHECK(view->shown[OWN * PAGE] == 22);
		CHECK(madvise(view->shown, PAGES * PAGE, MADV_DONTNEED) == 0);
		CHECK(view->shown[OWN * PAGE] == 33);
	}
}
