/* Memory that changes in every way that memory can, all the time, and is compared with what it should be.
 *
 * Each of four threads has 48 mappings of up to 64 pages. It goes over them again and again: compares each page of one with what it
 * has put there, and then writes to some pages, or gives some back; of every other one it also maps new ones over some, maps all
 * anew, moves them, makes them longer or shorter, or takes away rights and gives them back. The last thread's are private mappings
 * of a file of zeros, some pages of which it shares with the file for a moment. A step ends when each thread has gone over all of
 * its. Beside them there are 96 MiB that do not change, so that it costs something to clone the program. */
#include "victim.h"
#include <stdatomic.h>
#include <sched.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 4, SLOTS = 48, PAGES_MAX = 64, BALLAST = 96 << 20 };
/* A slot has two places, of twice the room that it ever needs. */
#define ROOM ((size_t)2 * PAGES_MAX * PAGE)
#define PLACE(thread, slot, side) ((uint64_t *)(0x530000000000 + (((size_t)(thread) * SLOTS + (slot)) * 2 + (side)) * ROOM))

struct slot {
	uint64_t *memory;
	int side;
	size_t pages;
	/* What is in each page; 0 is nothing. */
	uint64_t versions[PAGES_MAX];
};

static struct slot slots[THREADS][SLOTS];
static _Atomic int passes[THREADS];
static int zeros;
static uint64_t *ballast;

static void write_page(struct slot *slot, size_t page, uint64_t version)
{
	slot->versions[page] = version;
	for (size_t word = 0; word < WORDS; word++)
		slot->memory[page * WORDS + word] = version * 0x9e3779b97f4a7c15u + word;
}

static void compare(const struct slot *slot)
{
	for (size_t page = 0; page < slot->pages; page++) {
		uint64_t version = slot->versions[page];
		for (size_t word = 0; word < WORDS; word++) {
			uint64_t expected = version == 0 ? 0 : version * 0x9e3779b97f4a7c15u + word;
			if (slot->memory[page * WORDS + word] != expected)
				FAIL("page %zu of %zu at %p has not version %lu", page, slot->pages, (void *)slot->memory, version);
		}
	}
}

static void forget(struct slot *slot, size_t first, size_t pages)
{
	memset(slot->versions + first, 0, pages * sizeof *slot->versions);
}

static int is_of_a_file(const struct slot *slot)
{
	return slot >= slots[THREADS - 1];
}

static void map(struct slot *slot, size_t first, size_t pages, int flags)
{
	uint64_t *start = slot->memory + first * WORDS;
	int file = is_of_a_file(slot) ? zeros : -1;
	flags |= MAP_PRIVATE | (file == -1 ? MAP_ANONYMOUS : 0);
	off_t offset = file == -1 ? 0 : (off_t)(first * PAGE);
	CHECK(mmap(start, pages * PAGE, PROT_READ | PROT_WRITE, flags, file, offset) == start);
}

/* Nothing of what was there before is to be seen of pages that belong to the file itself for a moment. */
static void share(struct slot *slot, size_t first, size_t pages)
{
	uint64_t *start = slot->memory + first * WORDS;
	off_t offset = (off_t)(first * PAGE);
	CHECK(mmap(start, pages * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, zeros, offset) == start);
	forget(slot, first, pages);
	usleep(500);
	compare(slot);
}

static void change(int thread, int number, uint64_t random)
{
	struct slot *slot = &slots[thread][number];
	size_t first = random / 8 % slot->pages, count = 1 + random / 512 % (slot->pages - first);
	uint64_t *start = slot->memory + first * WORDS;
	size_t other = 2 + random / 32768 % (PAGES_MAX - 1), before = slot->pages;
	/* Every other one stays where it is, and has content that changes at most: what is known of it is of some age. */
	int what = (int)(random % 8);
	if (number % 2 == 0)
		what = what == 0 ? 0 : 7;
	switch (what) {
	case 0:
		CHECK(madvise(start, count * PAGE, MADV_DONTNEED) == 0);
		forget(slot, first, count);
		if (is_of_a_file(slot))
			usleep(500);
		break;
	case 1:
		if (is_of_a_file(slot))
			share(slot, first, count);
		map(slot, first, count, MAP_FIXED);
		forget(slot, first, count);
		break;
	case 2:
		CHECK(munmap(slot->memory, slot->pages * PAGE) == 0);
		slot->pages = other;
		map(slot, 0, other, MAP_FIXED_NOREPLACE);
		forget(slot, 0, other);
		break;
	case 3:
		/* Only what is one mapping can be moved, so what is in pieces is moved piece by piece. */
		slot->side ^= 1;
		for (size_t page = 0; page < slot->pages; page++) {
			uint64_t *to = PLACE(thread, number, slot->side) + page * WORDS;
			int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
			CHECK(mremap(slot->memory + page * WORDS, PAGE, PAGE, flags, to) == to);
		}
		slot->memory = PLACE(thread, number, slot->side);
		break;
	case 4:
		if (other < before) {
			CHECK(munmap(slot->memory + other * WORDS, (before - other) * PAGE) == 0);
		} else if (other > before) {
			uint64_t *last = slot->memory + (before - 1) * WORDS;
			CHECK(mremap(last, PAGE, (1 + other - before) * PAGE, 0) == last);
			forget(slot, before, other - before);
		}
		slot->pages = other;
		break;
	case 5:
		CHECK(mprotect(start, count * PAGE, PROT_READ) == 0);
		sched_yield();
		CHECK(mprotect(start, count * PAGE, PROT_READ | PROT_WRITE) == 0);
		break;
	default:
		for (size_t page = first; page < first + count; page += 3)
			write_page(slot, page, random | 1);
	}
}

static void *keep_changing(void *argument)
{
	int thread = (int)(intptr_t)argument;
	for (uint64_t turn = 1;; turn++) {
		for (int number = 0; number < SLOTS; number++) {
			compare(&slots[thread][number]);
			change(thread, number, mix(turn << 16 | (uint64_t)number << 8 | (uint64_t)thread));
		}
		passes[thread]++;
		usleep(10000);
	}
	return NULL;
}

static void set_up(void)
{
	/* A read-only descriptor: through it nobody can change what is shared. */
	int file = open("zeros", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(file != -1 && ftruncate(file, (off_t)(4 * PAGES_MAX * PAGE)) == 0 && close(file) == 0);
	zeros = open("zeros", O_RDONLY);
	CHECK(zeros != -1);
	ballast = mmap(NULL, BALLAST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(ballast != MAP_FAILED && madvise(ballast, BALLAST, MADV_NOHUGEPAGE) == 0);
	for (size_t page = 0; page < BALLAST / PAGE; page++)
		ballast[page * WORDS] = mix(page);
	for (intptr_t thread = 0; thread < THREADS; thread++) {
		for (int number = 0; number < SLOTS; number++) {
			struct slot *slot = &slots[thread][number];
			slot->memory = PLACE(thread, number, 0);
			slot->pages = PAGES_MAX / 2;
			map(slot, 0, slot->pages, MAP_FIXED_NOREPLACE);
		}
		pthread_t one;
		CHECK(pthread_create(&one, NULL, keep_changing, (void *)thread) == 0);
	}
}

static void hold(int step)
{
	for (int thread = 0; thread < THREADS; thread++) {
		/* Two, because the first one may have begun before the step. */
		for (int wanted = passes[thread] + 2; passes[thread] - wanted < 0;)
			usleep(1000);
	}
	say("step %d", step);
}

static void verify(void)
{
	for (size_t page = 0; page < BALLAST / PAGE; page++)
		CHECK(ballast[page * WORDS] == mix(page));
}
