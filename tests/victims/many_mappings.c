/* Thousands of mappings next to one another that cannot be one: they differ in their rights, or in advice. */
#include "victim.h"
#include <sys/mman.h>

#define PAGE 4096ul
enum { PAGES = 12000, MAP_TEXT_BYTES = 4 << 20 };

static unsigned char *pages;
static char map_at_start[MAP_TEXT_BYTES], map_now[MAP_TEXT_BYTES];

static unsigned char *page(size_t number)
{
	return pages + number * PAGE;
}

/* The lines of /proc/self/maps about the pages. */
static void read_map(char *into)
{
	static char line[512];
	FILE *map = fopen("/proc/self/maps", "r");
	CHECK(map != NULL);
	size_t used = 0;
	while (fgets(line, sizeof line, map)) {
		size_t start = strtoull(line, NULL, 16), bytes = strlen(line);
		if (start < (size_t)pages || start >= (size_t)page(PAGES))
			continue;
		CHECK(used + bytes < MAP_TEXT_BYTES);
		memcpy(into + used, line, bytes + 1);
		used += bytes;
	}
	fclose(map);
}

static void set_up(void)
{
	pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	for (size_t number = 0; number < PAGES; number++) {
		uint64_t word = mix(number);
		memcpy(page(number) + number % 500 * 8, &word, 8);
		if (number % 3 == 0)
			CHECK(mprotect(page(number), PAGE, PROT_READ) == 0);
		if (number % 3 == 1)
			CHECK(madvise(page(number), PAGE, MADV_DONTDUMP) == 0);
	}
	read_map(map_at_start);
}

static void hold(int step)
{
	read_map(map_now);
	CHECK(strcmp(map_now, map_at_start) == 0);
	for (size_t number = 2; number < PAGES; number += 3)
		page(number)[0] = (unsigned char)step;
	say("step %d %016llx", step, (unsigned long long)sum_of(pages, PAGES * PAGE));
}

static void verify(void)
{
	for (size_t number = 0; number < PAGES; number++) {
		uint64_t word;
		memcpy(&word, page(number) + number % 500 * 8, 8);
		CHECK(word == mix(number) || number % 500 == 0);
	}
}
