/* What it costs a program that its memory is write-protected, or that a clone of it lives, as both are so for ckpt's
 * sake.
 *
 *   protection MIB PERCENT ROUNDS
 *
 * One thread and fresh memory for each figure: MIB are written, prepared, and then PERCENT of the pages of 4 KiB are
 * rewritten, in small or huge pages, uniformly at random or every hundredth. Prepared is: nothing ("bare");
 * protected by userfaultfd, without a handler, and PAGEMAP_SCAN, as ckpt does it ("protected"); protected by mprotect,
 * with a handler of SIGSEGV that gives each page its right back, as others do it ("mprotect"); a child of fork() is
 * there that does nothing ("cloned"), or was there ("clone gone"); protected as ckpt does, and then a child ("both"). CSV on
 * stdout: how long that took, ms; processor time to rewrite a page, ns; that for the same pages once more; MiB in
 * huge pages before and after. Exit status 3 where the kernel cannot protect so (before Linux 6.7).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE = 2 << 20, USER_MODE_ONLY = 1, STRIDE = 100 };

/* Of Linux 6.7; older headers have them not. */
#define WP_UNPOPULATED (1 << 13)
#define WP_ASYNC (1 << 15)
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any_of, report;
};
#define SCAN _IOWR('f', 16, struct scan)
enum { SCAN_PROTECTS = 1, IS_PRESENT = 1 << 3 };
struct run {
	uint64_t start, end, categories;
};

static uint8_t *memory;
static uint64_t bytes, pages;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double clock_ns(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void rewrite(uint64_t page, uint64_t content)
{
	uint64_t *words = (uint64_t *)(void *)(memory + page * PAGE);
	for (int word = 0; word < PAGE / 8; word++)
		words[word] = next(&content);
}

/* Processor time to rewrite a page, of `count` that are always the same, ns. */
static double page_ns(uint64_t count, int is_strided)
{
	uint64_t state = 2463534242;
	double begun = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint64_t n = 0; n < count; n++) {
		uint64_t random = next(&state);
		rewrite(is_strided ? (n * STRIDE + n * STRIDE / pages) % pages : random % pages, random);
	}
	return (clock_ns(CLOCK_THREAD_CPUTIME_ID) - begun) / (double)count;
}

static unsigned long huge_mib(void)
{
	unsigned long kib = 0;
	char line[128];
	FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
	if (rollup == NULL)
		fail("smaps_rollup");
	while (fgets(line, sizeof line, rollup) != NULL)
		sscanf(line, "AnonHugePages: %lu", &kib);
	fclose(rollup);
	return kib / 1024;
}

/* Protects all memory; the descriptor that has to stay open. */
static int protect(void)
{
	int tracker = (int)syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
	struct uffdio_api api = { .api = UFFD_API, .features = WP_ASYNC | WP_UNPOPULATED };
	if (tracker < 0 || ioctl(tracker, UFFDIO_API, &api) != 0) {
		perror("this kernel cannot write-protect memory without a handler");
		exit(3);
	}
	struct uffdio_register area = { .range = { (uintptr_t)memory, bytes }, .mode = UFFDIO_REGISTER_MODE_WP };
	if (ioctl(tracker, UFFDIO_REGISTER, &area) != 0)
		fail("UFFDIO_REGISTER");
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct run runs[512];
	struct scan scan = { .size = sizeof scan, .flags = SCAN_PROTECTS, .end = (uintptr_t)memory + bytes };
	scan.vec = (uintptr_t)runs;
	scan.vec_len = sizeof runs / sizeof *runs;
	scan.any_of = scan.report = IS_PRESENT;
	for (scan.walk_end = (uintptr_t)memory; scan.walk_end < scan.end;) {
		scan.start = scan.walk_end;
		if (ioctl(pagemap, SCAN, &scan) < 0)
			fail("PAGEMAP_SCAN");
	}
	close(pagemap);
	return tracker;
}

/* The way without userfaultfd: each first write is a signal, and makes up to two mappings more. */
static void give_right_back(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
	if (page < (uintptr_t)memory || page >= (uintptr_t)memory + bytes)
		_exit(1);
	if (mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) != 0)
		_exit(1);
}

static void take_rights(void)
{
	struct sigaction action = { .sa_sigaction = give_right_back, .sa_flags = SA_SIGINFO };
	if (sigaction(SIGSEGV, &action, NULL) != 0 || mprotect(memory, bytes, PROT_READ) != 0)
		fail("mprotect");
}

static pid_t clone_that_waits(void)
{
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0)
		for (;;)
			pause();
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void measure(const char *state, int is_huge, int is_strided, uint64_t count, int round)
{
	/* As much more as makes it begin where a huge page does. */
	uint8_t *area = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED || madvise(area, bytes + HUGE, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
		fail("memory");
	memory = area + HUGE - (uintptr_t)area % HUGE;
	for (uint64_t page = 0; page < pages; page++)
		rewrite(page, page + 1);
	unsigned long huge_before = huge_mib();
	int tracker = -1;
	pid_t child = 0;
	double begun = clock_ns(CLOCK_MONOTONIC);
	if (strcmp(state, "protected") == 0 || strcmp(state, "both") == 0)
		tracker = protect();
	if (strcmp(state, "mprotect") == 0)
		take_rights();
	if (strncmp(state, "clone", 5) == 0 || strcmp(state, "both") == 0)
		child = clone_that_waits();
	if (strcmp(state, "clone gone") == 0) {
		end(child);
		child = 0;
	}
	double prepared_ms = (clock_ns(CLOCK_MONOTONIC) - begun) / 1e6;
	double first = page_ns(count, is_strided), again = page_ns(count, is_strided);
	printf("%s,%s,%s,%d,%.3f,%.1f,%.1f,%lu,%lu\n", is_huge ? "huge" : "small", is_strided ? "strided" : "uniform", state,
	       round, prepared_ms, first, again, huge_before, huge_mib());
	fflush(stdout);
	if (child != 0)
		end(child);
	if (tracker >= 0)
		close(tracker);
	munmap(area, bytes + HUGE);
}

int main(int count, char **arguments)
{
	static const char *const states[] = { "bare", "protected", "mprotect", "cloned", "clone gone", "both" };
	if (count != 4) {
		fprintf(stderr, "protection MIB PERCENT ROUNDS\n");
		return 2;
	}
	bytes = strtoull(arguments[1], NULL, 10) << 20;
	pages = bytes / PAGE;
	uint64_t rewritten = pages * strtoull(arguments[2], NULL, 10) / 100;
	int rounds = atoi(arguments[3]);
	printf("pages,pattern,state,round,prepared_ms,page_ns,again_ns,huge_before_mib,huge_after_mib\n");
	for (int round = 0; round < rounds; round++)
		for (int kind = 0; kind < 4; kind++)
			for (size_t state = 0; state < sizeof states / sizeof *states; state++)
				measure(states[state], kind / 2, kind % 2, rewritten, round);
	return 0;
}
