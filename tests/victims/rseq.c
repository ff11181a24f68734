/* Restartable sequences: threads count in counters of their processors, nearly always within the sequence.
 *
 * A sequence that goes on after another thread had its processor writes back an old count. Three threads share one
 * processor, so that whenever all stand still, two or more are in the middle of it. */
#include "victim.h"
#include <sched.h>
#include <signal.h>
#include <sys/rseq.h>

enum { THREADS = 4, FREE_THREAD = 3, ROUNDS = 20000, PROCESSORS = 4096 };
static struct {
	long count;
	char apart[120];
} counters[PROCESSORS];
static pthread_t threads[THREADS];
static volatile long done[THREADS], aborted[THREADS];
static volatile int pause_now, over;
static int paused;

/* 1 if it has counted, 0 if it was aborted. */
__attribute__((noinline)) static int count_one(void)
{
	__asm__ volatile goto(
		".pushsection __rseq_cs, \"aw\"\n"
		".balign 32\n"
		"3: .long 0, 0\n"
		".quad 1f, 2f - 1f, 4f\n"
		".popsection\n"
		"leaq 3b(%%rip), %%rax\n"
		"movq %%rax, %%fs:8(%[rseq])\n"
		"1: movl %%fs:4(%[rseq]), %%eax\n"
		"shlq $7, %%rax\n"
		"addq %[counters], %%rax\n"
		"movq (%%rax), %%rdx\n"
		"movl %[rounds], %%ecx\n"
		"5: subl $1, %%ecx\n"
		"jnz 5b\n"
		"addq $1, %%rdx\n"
		"movq %%rdx, (%%rax)\n"
		"2:\n"
		".pushsection __rseq_failure, \"ax\"\n"
		".byte 0x0f, 0xb9, 0x3d\n"
		".long 0x53053053\n"
		"4: jmp %l[abort]\n"
		".popsection\n"
		:
		: [rseq] "r"(__rseq_offset), [counters] "r"(counters), [rounds] "i"(ROUNDS)
		: "rax", "rcx", "rdx", "memory", "cc"
		: abort);
	return 1;
abort:
	return 0;
}

static void *count(void *argument)
{
	long number = (long)argument;
	while (!over) {
		if (pause_now) {
			__atomic_add_fetch(&paused, 1, __ATOMIC_SEQ_CST);
			while (pause_now)
				sleep_ms(1);
			__atomic_sub_fetch(&paused, 1, __ATOMIC_SEQ_CST);
		}
		if (count_one())
			done[number]++;
		else
			aborted[number]++;
	}
	return NULL;
}

static void do_nothing(int signal)
{
	(void)signal;
}

static void set_up(void)
{
	if (__rseq_size == 0) {
		say("SKIPPED: this C library or kernel has no restartable sequences");
		_exit(EXIT_SKIPPED);
	}
	struct sigaction action = { .sa_handler = do_nothing, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
	cpu_set_t mine, one;
	CHECK(sched_getaffinity(0, sizeof mine, &mine) == 0);
	CPU_ZERO(&one);
	for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &mine))
			CPU_SET(cpu, &one);
	for (long number = 0; number < THREADS; number++) {
		pthread_attr_t attributes;
		pthread_attr_init(&attributes);
		if (number != FREE_THREAD)
			CHECK(pthread_attr_setaffinity_np(&attributes, sizeof one, &one) == 0);
		CHECK(pthread_create(&threads[number], &attributes, count, (void *)number) == 0);
	}
}

static void hold(int step)
{
	for (int number = 0; number < THREADS; number++)
		CHECK(pthread_kill(threads[number], SIGUSR2) == 0);
	pause_now = 1;
	while (__atomic_load_n(&paused, __ATOMIC_SEQ_CST) < THREADS)
		sleep_ms(1);
	long counted = 0, expected = 0;
	for (int cpu = 0; cpu < PROCESSORS; cpu++)
		counted += counters[cpu].count;
	for (int number = 0; number < THREADS; number++)
		expected += done[number];
	if (counted != expected)
		FAIL("step %d: counted %ld of %ld", step, counted, expected);
	pause_now = 0;
	while (__atomic_load_n(&paused, __ATOMIC_SEQ_CST) > 0)
		sleep_ms(1);
	say("step %d", step);
}

static void verify(void)
{
	over = 1;
	long all_aborted = 0;
	for (int number = 0; number < THREADS; number++) {
		CHECK(pthread_join(threads[number], NULL) == 0);
		all_aborted += aborted[number];
	}
	/* The signals alone have aborted some. */
	CHECK(all_aborted > 0);
}
