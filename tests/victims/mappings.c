/* One mapping of each kind, with a checksum of all content at each step, and the map itself compared with the one
 * at the start: addresses, rights, offsets, names, and the flags that smaps shows. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/stat.h>

#define PAGE 4096ul
#define HUGE_BYTES (2ul << 20)
#define SPARSE_BYTES (64ul << 30)
enum { SPARSE_PAGES = 200, REGIONS_MAX = 32, MAP_TEXT_BYTES = 1 << 18, GROWTH = 64, DEPTH = 1280 };

struct region {
	const char *name;
	unsigned char *at;
	size_t bytes;
	int readable;
};

static struct region regions[REGIONS_MAX];
static int region_count;
static unsigned char *wiped, *sparse, *hidden, *grown, *shared, *memfd_one, *memfd_other, *file_shared, *heap;
static char map_at_start[MAP_TEXT_BYTES], map_now[MAP_TEXT_BYTES], map_raw[MAP_TEXT_BYTES];

static void fill(unsigned char *at, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word = mix(seed * 1000003 + i);
		memcpy(at + i, &word, 8);
	}
}

static unsigned char *map(void *where, size_t bytes, int rights, int flags, int file, off_t offset)
{
	unsigned char *at = mmap(where, bytes, rights, flags, file, offset);
	if (at == MAP_FAILED)
		FAIL("mmap of %zu bytes: %d", bytes, errno);
	return at;
}

static unsigned char *keep(const char *name, unsigned char *at, size_t bytes)
{
	CHECK(region_count < REGIONS_MAX);
	regions[region_count++] = (struct region){ name, at, bytes, 1 };
	return at;
}

static unsigned char *anonymous(const char *name, size_t bytes, int flags)
{
	unsigned char *at = map(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	fill(at, bytes, (uint64_t)region_count + 1);
	return keep(name, at, bytes);
}

static int file_of(const char *path, size_t bytes, uint64_t seed)
{
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	unsigned char *content = malloc(bytes);
	fill(content, bytes, seed);
	CHECK(file >= 0 && write(file, content, bytes) == (ssize_t)bytes);
	free(content);
	return file;
}

static void map_files(void)
{
	int file = file_of("mapped", 16 * PAGE, 50);
	unsigned char *partly = map(NULL, 12 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 2 * PAGE);
	partly[3 * PAGE + 5] = 0xaa;
	partly[7 * PAGE + 9] = 0xbb;
	keep("private file, two pages written", partly, 12 * PAGE);
	keep("private file, read only", map(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, file, 0), 4 * PAGE);
	file_shared = map(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	keep("shared file", file_shared, 8 * PAGE);
	close(file);
	int memory = memfd_create("two views", 0);
	CHECK(memory >= 0 && ftruncate(memory, 6 * PAGE) == 0);
	memfd_one = keep("memfd", map(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0), 6 * PAGE);
	memfd_other = map(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 2 * PAGE);
	fill(memfd_one, 6 * PAGE, 60);
	close(memory);
}

static void map_oddities(void)
{
	hidden = anonymous("content behind PROT_NONE", 5 * PAGE, MAP_PRIVATE);
	CHECK(mprotect(hidden, 5 * PAGE, PROT_NONE) == 0);
	regions[region_count - 1].readable = 0;
	unsigned char *fixed = anonymous("read only after writing", 5 * PAGE, MAP_PRIVATE);
	CHECK(mprotect(fixed, 5 * PAGE, PROT_READ) == 0);
	unsigned char *code = anonymous("executable", 2 * PAGE, MAP_PRIVATE);
	CHECK(mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC) == 0);
	/* Leave room below, then let it grow by touching. What lies below the room cannot be read, so it needs no guard
	 * gap, and no later mapping comes closer than that. */
	unsigned char *room = map(NULL, 512 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(munmap(room + 400 * PAGE, 112 * PAGE) == 0);
	grown = map(room + 508 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
	for (int page = 1; page <= 8; page++)
		*(volatile unsigned char *)(grown - (size_t)page * PAGE) = (unsigned char)page;
	grown -= 8 * PAGE;
	keep("grows down", grown, 12 * PAGE);
	sparse = map(NULL, SPARSE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (size_t i = 0; i < SPARSE_PAGES; i++)
		sparse[i * (SPARSE_BYTES / SPARSE_PAGES)] = (unsigned char)(i + 1);
	unsigned char *moved = map(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(moved, 3 * PAGE, 70);
	unsigned char *target = map(NULL, 9 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	moved = mremap(moved, 3 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
	CHECK(moved == target);
	keep("moved and enlarged", moved, 6 * PAGE);
	/* Between pages of another kind: neighbours alike are one mapping in one life and two in another. */
	unsigned char *edges = map(NULL, 3 * HUGE_BYTES + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *huge = map(edges + PAGE, 3 * HUGE_BYTES, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (madvise(huge, 3 * HUGE_BYTES, MADV_HUGEPAGE) != 0)
		CHECK(errno == EINVAL);
	/* Part of a huge page. */
	fill(huge, HUGE_BYTES + HUGE_BYTES / 2, 75);
	keep("huge pages", huge, 3 * HUGE_BYTES);
	keep("zeros", map(NULL, 30 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 30 * PAGE);
}

static void map_advised(void)
{
	static const struct {
		const char *name;
		int advice;
	} advised[] = { { "dontfork", MADV_DONTFORK },     { "wipeonfork", MADV_WIPEONFORK },
			{ "dontdump", MADV_DONTDUMP },     { "sequential", MADV_SEQUENTIAL },
			{ "random", MADV_RANDOM },         { "hugepage", MADV_HUGEPAGE },
			{ "nohugepage", MADV_NOHUGEPAGE }, { "mergeable", MADV_MERGEABLE } };
	for (size_t i = 0; i < sizeof advised / sizeof advised[0]; i++) {
		unsigned char *at = anonymous(advised[i].name, 3 * PAGE, MAP_PRIVATE);
		if (advised[i].advice == MADV_WIPEONFORK) {
			/* Comes back zeroed, as in a child: not part of the sum. */
			wiped = at;
			region_count--;
		}
		/* A kernel may be built without one of them. */
		if (madvise(at, 3 * PAGE, advised[i].advice) != 0)
			CHECK(errno == EINVAL);
	}
	unsigned char *locked = anonymous("locked", 2 * PAGE, MAP_PRIVATE);
	if (mlock(locked, 2 * PAGE) != 0)
		CHECK(errno == ENOMEM || errno == EPERM);
}

/* Keeps of each line what a restart must not change: not device and inode numbers, and of smaps only the flags. */
static void read_map(char *text)
{
	size_t length = 0, used = 0;
	int file = open("/proc/self/smaps", O_RDONLY);
	CHECK(file >= 0);
	static char chunk[PAGE];
	ssize_t count;
	char *line = map_raw;
	while ((count = read(file, chunk, sizeof chunk)) > 0) {
		for (ssize_t i = 0; i < count; i++) {
			line[length++] = chunk[i];
			if (chunk[i] != '\n')
				continue;
			line[length - 1] = 0;
			length = 0;
			char range[64], rights[8], offset[32];
			int name = 0;
			if (sscanf(line, "%63[0-9a-f-] %7s %31s %*s %*s %n", range, rights, offset, &name) == 3 && name)
				used += (size_t)snprintf(text + used, MAP_TEXT_BYTES - used, "%s %s %s %s", range, rights,
							 offset, line + name);
			else if (strncmp(line, "VmFlags:", 8) == 0) {
				/* Write-protection of tracked memory (uw) belongs to libckpt, soft-dirty (sd) to the kernel. */
				used += (size_t)snprintf(text + used, MAP_TEXT_BYTES - used, " |");
				for (char *flag = strtok(line + 8, " "); flag; flag = strtok(NULL, " "))
					if (strcmp(flag, "uw") != 0 && strcmp(flag, "sd") != 0)
						used += (size_t)snprintf(text + used, MAP_TEXT_BYTES - used, " %s", flag);
				used += (size_t)snprintf(text + used, MAP_TEXT_BYTES - used, "\n");
			}
			CHECK(used < MAP_TEXT_BYTES - 512);
		}
	}
	close(file);
}

static void compare_map(void)
{
	/* Of a file of /proc that was open at a checkpoint the rest is made anew, and need not fit to what has been read. */
	for (int attempt = 0; attempt < 3; attempt++) {
		read_map(map_now);
		if (strcmp(map_at_start, map_now) == 0)
			return;
	}
	size_t at = 0, line = 0;
	for (; map_at_start[at] == map_now[at]; at++)
		if (map_now[at] == '\n')
			line = at + 1;
	FAIL("the map differs: was\n%.200s\nis\n%.200s", map_at_start + line, map_now + line);
}

static void set_up(void)
{
	anonymous("private anonymous", 40 * PAGE, MAP_PRIVATE);
	shared = anonymous("shared anonymous", 20 * PAGE, MAP_SHARED);
	map_files();
	map_oddities();
	map_advised();
	heap = sbrk(50 * (intptr_t)PAGE);
	CHECK(heap != (void *)-1);
	fill(heap, 50 * PAGE, 80);
	keep("heap", heap, 50 * PAGE);
	memset(map_now, 0, sizeof map_now);
	read_map(map_now);
	read_map(map_at_start);
}

static uint64_t sum_of_all(void)
{
	uint64_t sum = 0;
	for (int i = 0; i < region_count; i++) {
		struct region *region = &regions[i];
		if (region->readable)
			sum = mix(sum ^ sum_of(region->at, region->bytes));
	}
	for (size_t i = 0; i < SPARSE_PAGES; i++)
		sum = mix(sum ^ sparse[i * (SPARSE_BYTES / SPARSE_PAGES)]);
	return sum;
}

static void hold(int step)
{
	shared[(size_t)step * 37] ^= 0x55;
	memfd_other[(size_t)step * 11] ^= 0x33;
	CHECK(memfd_one[2 * PAGE + (size_t)step * 11] == memfd_other[(size_t)step * 11]);
	heap[(size_t)step * 101] ^= 0x77;
	say("step %d sum %016lx", step, sum_of_all());
	compare_map();
}

/* Uses a page of the stack and more for each level. */
__attribute__((noinline)) static uint64_t sum_of_stack(int depth)
{
	volatile unsigned char page[PAGE];
	for (size_t at = 0; at < PAGE; at += 256)
		page[at] = (unsigned char)(mix((uint64_t)depth) >> at / 256);
	uint64_t below = depth > 0 ? sum_of_stack(depth - 1) : 0;
	for (size_t at = 0; at < PAGE; at += 256)
		below = mix(below ^ page[at]);
	return below;
}

static void verify(void)
{
	/* 5 MiB more than the stack has had. */
	say("stack %016lx", sum_of_stack(DEPTH));
	CHECK(mprotect(hidden, 5 * PAGE, PROT_READ) == 0);
	if (kind[0] != 0)
		say("wiped %d", wiped[0] == 0 && wiped[3 * PAGE - 1] == 0);
	say("hidden %016lx", sum_of(hidden, 5 * PAGE));
	/* The heap goes on where it ended, and the growing mapping still grows. */
	unsigned char *more = sbrk(GROWTH * (intptr_t)PAGE);
	CHECK(more == heap + 50 * PAGE);
	fill(more, GROWTH * PAGE, 90);
	for (int page = 1; page <= 8; page++)
		*(volatile unsigned char *)(grown - (size_t)page * PAGE) = (unsigned char)page;
	CHECK(malloc(1 << 20) != NULL && malloc(100) != NULL);
	say("grown %016lx %016lx", sum_of(more, GROWTH * PAGE), sum_of(grown - 8 * PAGE, 8 * PAGE));
}
