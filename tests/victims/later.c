/* MIB of memory whose every page tells what it is, looked at in a way that is given, as soon as there is a file "go": what a
 * restart does before memory is there. Arguments: MIB WAY. Prints "ready"; then "early" if memory is missing when it begins,
 * "late" if not; "whole" when it has found all as it has to be, and once more when nothing is missing; and ends with 7. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, THREADS = 8, PIECE = 1 << 20 };

static uint64_t *memory;
static size_t pages;

static uint64_t mixed(uint64_t value)
{
	value = (value ^ value >> 31) * 0x7fb5d329728ea185u;
	value = (value ^ value >> 27) * 0x81dadef4bc2dd44du;
	return value ^ value >> 33;
}

static void fail(const char *what, size_t page)
{
	printf("wrong: %s, page %zu\n", what, page);
	fflush(stdout);
	_exit(1);
}

static void look_at(const uint64_t *at, size_t page)
{
	for (size_t word = 0; word < WORDS; word++)
		if (at[word] != mixed(page * WORDS + word + 1))
			fail("content", page);
}

static void look_for_zeros(const uint64_t *at, size_t page)
{
	for (size_t word = 0; word < WORDS; word++)
		if (at[word] != 0)
			fail("not zero", page);
}

static void look_at_all(void)
{
	/* From the end, since they come from the beginning. */
	for (size_t page = pages; page-- > 0;)
		look_at(memory + page * WORDS, page);
}

static int something_is_missing(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");
	char line[512];
	int found = 0;
	while (fgets(line, sizeof line, smaps) != NULL)
		found |= strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " um") != NULL;
	fclose(smaps);
	return found;
}

static void *look_from_a_thread(void *argument)
{
	size_t number = (size_t)argument;
	for (size_t n = 0; n < pages / THREADS; n++) {
		size_t page = (n * 7919 % (pages / THREADS)) * THREADS + number;
		look_at(memory + page * WORDS, page);
	}
	return NULL;
}

static void in_threads(void)
{
	pthread_t all[THREADS];
	for (size_t number = 0; number < THREADS; number++)
		pthread_create(&all[number], NULL, look_from_a_thread, (void *)number);
	for (size_t number = 0; number < THREADS; number++)
		pthread_join(all[number], NULL);
}

/* The kernel reads memory that the program has not touched. */
static void by_calls(void)
{
	static uint64_t back[PIECE / 8];
	int file = open("copy", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unlink("copy");
	for (size_t at = pages * PAGE; at > 0; at -= PIECE)
		if (pwrite(file, (char *)memory + at - PIECE, PIECE, (off_t)(at - PIECE)) != PIECE)
			fail("write", at / PAGE);
	for (size_t at = 0; at < pages * PAGE; at += PIECE) {
		if (pread(file, back, PIECE, (off_t)at) != PIECE)
			fail("read", at / PAGE);
		for (size_t page = 0; page < PIECE / PAGE; page++)
			look_at(back + page * WORDS, at / PAGE + page);
	}
	close(file);
}

static void in_children(void)
{
	pid_t child = fork();
	if (child == 0) {
		pid_t grandchild = fork();
		look_at_all();
		int status = 0;
		if (grandchild != 0 && (waitpid(grandchild, &status, 0) != grandchild || status != 0))
			fail("grandchild", 0);
		_exit(0);
	}
	look_at_all();
	int status;
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("child", 0);
}

/* A part is dropped, a part unmapped and mapped anew, and both are zeros, whatever was to come there. */
static void dropped(int again)
{
	size_t first = pages / 2, count = pages / 8, hole = pages / 4, holes = 64;
	if (!again) {
		madvise(memory + first * WORDS, count * PAGE, MADV_DONTNEED);
		munmap(memory + hole * WORDS, holes * PAGE);
		void *fresh = mmap(memory + hole * WORDS, holes * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (fresh != memory + hole * WORDS)
			fail("mapped anew", hole);
	}
	for (size_t page = pages; page-- > 0;) {
		const uint64_t *at = memory + page * WORDS;
		if ((page >= first && page < first + count) || (page >= hole && page < hole + holes))
			look_for_zeros(at, page);
		else
			look_at(at, page);
	}
}

/* The upper half moves, and has grown by as much. */
static void moved(int again)
{
	static uint64_t *there;
	size_t half = pages / 2;
	if (!again)
		there = mremap(memory + half * WORDS, half * PAGE, 2 * half * PAGE, MREMAP_MAYMOVE);
	if (there == MAP_FAILED)
		fail("mremap", half);
	for (size_t page = half; page-- > 0;) {
		look_at(there + page * WORDS, half + page);
		look_at(memory + page * WORDS, page);
	}
	look_for_zeros(there + half * WORDS, half);
	look_for_zeros(there + (2 * half - 1) * WORDS, 2 * half - 1);
}

static void look(const char *way, int again)
{
	if (strcmp(way, "threads") == 0)
		in_threads();
	else if (strcmp(way, "calls") == 0)
		by_calls();
	else if (strcmp(way, "children") == 0)
		in_children();
	else if (strcmp(way, "dropped") == 0)
		dropped(again);
	else if (strcmp(way, "moved") == 0)
		moved(again);
	else
		look_at_all();
}

int main(int count, char **arguments)
{
	if (count != 3)
		return 2;
	pages = strtoul(arguments[1], NULL, 10) * 256;
	memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	for (size_t word = 0; word < pages * WORDS; word++)
		memory[word] = mixed(word + 1);
	puts("ready");
	fflush(stdout);
	while (access("go", F_OK) != 0)
		usleep(500);
	puts(something_is_missing() ? "early" : "late");
	fflush(stdout);
	look(arguments[2], 0);
	puts("whole");
	fflush(stdout);
	while (something_is_missing())
		usleep(1000);
	look(arguments[2], 1);
	puts("whole");
	fflush(stdout);
	/* "stay": until it is ended. */
	while (strcmp(arguments[2], "stay") == 0)
		pause();
	return 7;
}
