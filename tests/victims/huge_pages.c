/* Memory of huge pages (MAP_HUGETLB), two each: private; private without a right to write; private, and a child has it since a fork; shared with
 * that child; a memory file, open and mapped; one that is mapped alone. Each step changes a word of most, and prints what all of them
 * hold. */
#include "victim.h"
#include <linux/memfd.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { HUGE = 2 << 20, BYTES = 2 * HUGE };

static unsigned char *private, *constant, *inherited, *shared, *file, *mapped;
static int fd, to_child[2], from_child[2];
static pid_t child;

static unsigned char *map(int flags, int from)
{
	unsigned char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, from, 0);
	if (at == MAP_FAILED) {
		say("no huge pages (errno %d)", errno);
		_exit(EXIT_SKIPPED);
	}
	return at;
}

static void fill(unsigned char *memory, unsigned seed)
{
	uint64_t *words = (uint64_t *)memory;
	/* Some of it stays zero. */
	for (size_t i = 0; i < (HUGE + HUGE / 2) / 8; i++)
		words[i] = mix(i + seed);
}

/* The child changes what is shared, and says what it sees. */
static void answer(void)
{
	char byte;
	while (read(to_child[0], &byte, 1) == 1) {
		shared[HUGE + 1] += (unsigned char)(1 + (sum_of(inherited, BYTES) & 1));
		CHECK(write(from_child[1], &shared[HUGE + 2], 1) == 1);
	}
	_exit(0);
}

static unsigned char *memory_file(const char *name)
{
	fd = memfd_create(name, MFD_HUGETLB | MFD_HUGE_2MB);
	CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
	return map(MAP_SHARED, fd);
}

static void set_up(void)
{
	private = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1);
	fill(private, 1);
	constant = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1);
	fill(constant, 2);
	CHECK(mprotect(constant, BYTES, PROT_READ) == 0);
	inherited = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1);
	fill(inherited, 6);
	shared = map(MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1);
	fill(shared, 3);
	mapped = memory_file("mapped");
	fill(mapped, 4);
	close(fd);
	file = memory_file("open");
	fill(file, 5);
	CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
	/* It has no huge pages of its own: there may be none left for it. */
	CHECK(madvise(private, BYTES, MADV_DONTFORK) == 0 && madvise(constant, BYTES, MADV_DONTFORK) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(to_child[1]);
		answer();
	}
	CHECK(madvise(private, BYTES, MADV_DOFORK) == 0 && madvise(constant, BYTES, MADV_DOFORK) == 0);
	close(to_child[0]);
}

/* Of the kernel's own list: how large the pages are. */
static int is_huge(const void *memory)
{
	FILE *list = fopen("/proc/self/smaps", "r");
	CHECK(list != NULL);
	char line[512];
	unsigned long start = 0, end = 0, kib = 0;
	int found = 0;
	while (fgets(line, sizeof line, list) != NULL) {
		sscanf(line, "%lx-%lx ", &start, &end);
		if (sscanf(line, "KernelPageSize: %lu kB", &kib) == 1)
			found |= (unsigned long)memory >= start && (unsigned long)memory < end && kib == HUGE >> 10;
	}
	fclose(list);
	return found;
}

static void hold(int step)
{
	unsigned char byte = (unsigned char)step;
	private[HUGE + 3] = shared[HUGE + 2] = file[7] = mapped[9] = byte;
	CHECK(write(to_child[1], "x", 1) == 1 && read(from_child[0], &byte, 1) == 1);
	unsigned char read_back;
	CHECK(pread(fd, &read_back, 1, 7) == 1);
	say("%d private %016lx constant %016lx shared %016lx file %016lx mapped %016lx inherited %016lx, child saw %d, read %d", step,
	    sum_of(private, BYTES), sum_of(constant, BYTES), sum_of(shared, BYTES), sum_of(file, BYTES),
	    sum_of(mapped, BYTES), sum_of(inherited, BYTES), byte, read_back);
}

static void verify(void)
{
	say("huge %d %d %d %d %d", is_huge(private), is_huge(constant), is_huge(shared), is_huge(file), is_huge(mapped));
	close(to_child[1]);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
