/* Threads within two nested signal handlers on an alternate stack, over all steps. One leaves them by return, one by
 * siglongjmp, one is on a stack that is disarmed while it is used. */
#include "victim.h"
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif
enum { BY_RETURN, BY_JUMP, DISARMED, THREADS, STACK_BYTES = 256 * 1024 };
static const char *const named[] = { "return", "jump", "disarmed" };
static char stacks[THREADS][STACK_BYTES] __attribute__((aligned(4096)));
static pthread_t threads[THREADS];
static sem_t asked[THREADS], answered;
static sigjmp_buf base[THREADS];
static volatile int leaving, entered[THREADS], outer_returned[THREADS];
static __thread volatile int me;

static int outer_signal(void) { return SIGRTMIN + 1; }
static int inner_signal(void) { return SIGRTMIN + 2; }

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		CHECK(errno == EINTR);
}

static int is_on_own_stack(const volatile void *address)
{
	const char *at = (const char *)address;
	return at >= stacks[me] && at < stacks[me] + STACK_BYTES;
}

/* The signals that the calling thread blocks are these. */
static int blocks(int outer, int inner, int also)
{
	sigset_t mask;
	pthread_sigmask(SIG_BLOCK, NULL, &mask);
	return sigismember(&mask, outer_signal()) == outer && sigismember(&mask, inner_signal()) == inner &&
	       sigismember(&mask, SIGUSR2) == also && !sigismember(&mask, SIGTERM);
}

static void check_stack(int within)
{
	stack_t stack;
	CHECK(sigaltstack(NULL, &stack) == 0);
	if (me == DISARMED && within) {
		CHECK(stack.ss_flags == SS_DISABLE);
		return;
	}
	unsigned flags = (within ? SS_ONSTACK : 0) | (me == DISARMED ? SS_AUTODISARM : 0);
	CHECK((unsigned)stack.ss_flags == flags && stack.ss_sp == stacks[me] && stack.ss_size == STACK_BYTES);
}

static void inner(int signal, siginfo_t *info, void *context)
{
	volatile double kept = 1.0 / (3 + me);
	(void)context;
	for (;;) {
		CHECK(signal == inner_signal() && info->si_value.sival_int == 200 + me);
		CHECK(is_on_own_stack(&kept) && kept == 1.0 / (3 + me) && blocks(1, 1, 1));
		check_stack(1);
		entered[me]++;
		sem_post(&answered);
		wait_for(&asked[me]);
		if (!leaving)
			continue;
		if (me == BY_JUMP)
			siglongjmp(base[me], 1);
		return;
	}
}

static void send(int signal, int value)
{
	union sigval with = { .sival_int = value };
	CHECK(pthread_sigqueue(pthread_self(), signal, with) == 0);
}

static void outer(int signal, siginfo_t *info, void *context)
{
	volatile int kept = 40 + me;
	(void)context;
	CHECK(is_on_own_stack(&kept) && blocks(1, 0, 1));
	send(inner_signal(), 200 + me);
	CHECK(signal == outer_signal() && info->si_value.sival_int == 100 + me);
	CHECK(kept == 40 + me && blocks(1, 0, 1));
	check_stack(1);
	outer_returned[me] = 1;
}

static void *be_within(void *argument)
{
	me = (int)(intptr_t)argument;
	unsigned flags = me == DISARMED ? SS_AUTODISARM : 0;
	stack_t stack = { .ss_sp = stacks[me], .ss_size = STACK_BYTES, .ss_flags = (int)flags };
	CHECK(sigaltstack(&stack, NULL) == 0);
	volatile uint64_t kept = mix((uint64_t)me);
	for (int round = 0; round < 2; round++) {
		outer_returned[me] = 0;
		if (sigsetjmp(base[me], 1) == 0)
			send(outer_signal(), 100 + me);
		CHECK(outer_returned[me] == (me != BY_JUMP));
		CHECK(kept == mix((uint64_t)me) && !is_on_own_stack(&kept) && blocks(0, 0, 0));
		if (me != DISARMED || outer_returned[me])
			check_stack(0);
	}
	return NULL;
}

static void set_up(void)
{
	sem_init(&answered, 0, 0);
	struct sigaction action = { .sa_sigaction = outer, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaddset(&action.sa_mask, SIGUSR2);
	CHECK(sigaction(outer_signal(), &action, NULL) == 0);
	action.sa_sigaction = inner;
	CHECK(sigaction(inner_signal(), &action, NULL) == 0);
	for (long number = 0; number < THREADS; number++) {
		sem_init(&asked[number], 0, 0);
		CHECK(pthread_create(&threads[number], NULL, be_within, (void *)number) == 0);
	}
	for (int number = 0; number < THREADS; number++)
		wait_for(&answered);
}

/* Each has looked around `times` times. */
static void check_entered(int times)
{
	for (int number = 0; number < THREADS; number++)
		if (entered[number] != times)
			FAIL("%s: %d of %d", named[number], entered[number], times);
}

static void ask(void)
{
	for (int number = 0; number < THREADS; number++)
		sem_post(&asked[number]);
	for (int number = 0; number < THREADS; number++)
		wait_for(&answered);
}

static void hold(int step)
{
	ask();
	check_entered(step + 1);
	say("step %d", step);
}

static void verify(void)
{
	/* They leave, and are on the same stack once more. */
	leaving = 1;
	ask();
	check_entered(steps + 2);
	for (int number = 0; number < THREADS; number++)
		sem_post(&asked[number]);
	for (int number = 0; number < THREADS; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
}
