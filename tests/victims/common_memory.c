/* A family that shares memory copy on write: three children of a process with 24 MiB have most of it, not all. One has written some pages, one has
 * given some back (they are zero), one has cut it into parts of different protection. The parent has written some since. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { CHILDREN = 3, BYTES = 24 << 20, PAGE = 4096 };

static unsigned char *memory;
static int asked[CHILDREN][2], answered[CHILDREN][2];
static pid_t children[CHILDREN];

static void change(int child)
{
	for (size_t page = (size_t)child; page < BYTES / PAGE; page += 97)
		memory[page * PAGE + 8] ^= 0xff;
	if (child == 1)
		CHECK(madvise(memory + 100 * PAGE, 300 * PAGE, MADV_DONTNEED) == 0);
	if (child == 2)
		CHECK(mprotect(memory + 64 * PAGE, 1000 * PAGE, PROT_READ) == 0 && munmap(memory + 2000 * PAGE, 500 * PAGE) == 0);
}

static uint64_t sum(int child)
{
	if (child != 2)
		return sum_of(memory, BYTES);
	return sum_of(memory, 2000 * PAGE) ^ sum_of(memory + 2500 * PAGE, BYTES - 2500 * PAGE);
}

static void serve(int child)
{
	char byte;
	change(child);
	for (int other = 0; other <= child; other++)
		close(asked[other][1]), close(answered[other][0]);
	while (read(asked[child][0], &byte, 1) == 1) {
		uint64_t answer = sum(child);
		CHECK(write(answered[child][1], &answer, sizeof answer) == sizeof answer);
		memory[(size_t)child * PAGE]++;
	}
	_exit(5);
}

static uint64_t ask(int child)
{
	uint64_t answer;
	CHECK(write(asked[child][1], "?", 1) == 1);
	CHECK(read(answered[child][0], &answer, sizeof answer) == sizeof answer);
	return answer;
}

static void set_up(void)
{
	memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (size_t word = 0; word < BYTES / 8; word++)
		((uint64_t *)memory)[word] = mix(word / 64);
	for (int child = 0; child < CHILDREN; child++) {
		CHECK(pipe(asked[child]) == 0 && pipe(answered[child]) == 0);
		children[child] = fork();
		if (children[child] == 0)
			serve(child);
		close(asked[child][0]), close(answered[child][1]);
	}
	for (int child = 0; child < CHILDREN; child++)
		ask(child);
	memory[50 * PAGE] ^= 0xff;
}

static void hold(int step)
{
	uint64_t all = sum_of(memory, BYTES);
	for (int child = 0; child < CHILDREN; child++)
		all = mix(all ^ ask(child));
	say("step %d: %016llx", step, (unsigned long long)all);
}

static void verify(void)
{
	for (int child = 0; child < CHILDREN; child++) {
		int status;
		close(asked[child][1]);
		CHECK(waitpid(children[child], &status, 0) == children[child] && WIFEXITED(status) && WEXITSTATUS(status) == 5);
	}
}
