/* 64 MiB in which each step changes one word in every fourth page, always the same word of a page: pages change, and hardly
 * any of their bytes. With the kind "regions", mappings of up to 12 MiB beside it are made, filled, made longer and shorter,
 * emptied, joined and removed, each step another thing. With "collides", in step 30 one chunk of 32 bytes becomes another that
 * has the same digest (Murmur3-x64-128; made by kernels/tests/forged). */
#include "victim.h"
#include <sys/mman.h>

enum { COLLISION_STEP = 30 };
enum { PAGE = 4096, PAGE_WORDS = PAGE / 8, PAGES = 16384, SLOTS = 3, SLOT_PAGES = 1024 };
#define PLACE(slot) ((uint64_t *)(0x520000000000 + (size_t)(slot) * 64 * SLOT_PAGES * PAGE))

static uint64_t *large;
static size_t slot_pages[SLOTS];
static const unsigned char chunks[2][32] = {
	{ 141, 44, 202, 104, 6, 164, 67, 225, 127, 29, 188, 90, 248, 150, 52, 211,
	  113, 15, 173, 75, 234, 136, 38, 196, 99, 1, 159, 61, 219, 122, 24, 182 },
	{ 141, 44, 202, 40, 6, 164, 67, 225, 127, 29, 188, 90, 248, 150, 52, 211,
	  90, 59, 210, 29, 117, 22, 192, 133, 203, 127, 143, 15, 65, 179, 173, 105 },
};

static void fill(uint64_t *place, size_t first, size_t pages, uint64_t seed)
{
	for (size_t i = first * PAGE_WORDS; i < (first + pages) * PAGE_WORDS; i++)
		place[i] = mix(seed << 32 | i);
}

static void map(uint64_t *place, size_t pages)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
	CHECK(mmap(place, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == place);
}

static void set_up(void)
{
	large = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(large != MAP_FAILED);
	fill(large, 0, PAGES, 1);
	memcpy(large, chunks[0], 32);
}

static void scatter(uint64_t *place, size_t pages, int step)
{
	for (size_t page = 1 + step % 4; page < pages; page += 4)
		place[page * PAGE_WORDS + mix(page) % PAGE_WORDS] += step;
}

/* The life of a slot in eight steps; its neighbour below it is mapped in step 6, and the kernel joins the two. */
static void change(int slot, int step)
{
	uint64_t *place = PLACE(slot + 1);
	size_t *pages = &slot_pages[slot];
	switch ((step + 3 * slot) % 8) {
	case 0:
		if (*pages > 0) {
			CHECK(munmap(place, *pages * PAGE) == 0);
			CHECK(munmap(place - SLOT_PAGES * PAGE_WORDS, SLOT_PAGES * PAGE) == 0);
		}
		*pages = SLOT_PAGES;
		map(place, *pages);
		fill(place, 0, *pages, step);
		break;
	case 2:
		if (*pages > 0) {
			CHECK(mremap(place, *pages * PAGE, 2 * *pages * PAGE, 0) == place);
			fill(place, *pages, *pages, step);
			*pages *= 2;
		}
		break;
	case 4:
		if (*pages > 0)
			CHECK(madvise(place + 7 * PAGE_WORDS, 100 * PAGE, MADV_DONTNEED) == 0);
		break;
	case 5:
		if (*pages > SLOT_PAGES) {
			*pages -= 300;
			CHECK(munmap(place + *pages * PAGE_WORDS, 300 * PAGE) == 0);
		}
		break;
	case 6:
		if (*pages > 0) {
			map(place - SLOT_PAGES * PAGE_WORDS, SLOT_PAGES);
			fill(place - SLOT_PAGES * PAGE_WORDS, 0, SLOT_PAGES, step);
		}
		break;
	default:
		scatter(place, *pages, step);
	}
}

static uint64_t sample(const uint64_t *place, size_t pages)
{
	uint64_t sum = 0;
	for (size_t page = 0; page < pages; page++)
		sum = mix(sum ^ place[page * PAGE_WORDS + mix(page) % PAGE_WORDS]);
	return sum;
}

static void hold(int step)
{
	uint64_t sum = 0;
	scatter(large, PAGES, step);
	if (strcmp(kind, "collides") == 0) {
		CHECK(memcmp(large, chunks[step > COLLISION_STEP], 32) == 0);
		memcpy(large, chunks[step >= COLLISION_STEP], 32);
	}
	for (int slot = 0; slot < SLOTS && strcmp(kind, "regions") == 0; slot++) {
		change(slot, step);
		sum = mix(sum ^ sample(PLACE(slot + 1), slot_pages[slot]));
	}
	say("step %d %016lx %016lx", step, sample(large, PAGES), sum);
}

static void verify(void)
{
	say("sum %016lx", sum_of(large, (size_t)PAGES * PAGE));
	for (int slot = 0; slot < SLOTS; slot++)
		say("slot %d %016lx", slot, sum_of(PLACE(slot + 1), slot_pages[slot] * PAGE));
}
