/* A thread that waits in one call, which KIND names, while checkpoints are taken or refused: the call must return what it would have,
 * when the main thread ends it. The line "holds KIND WORD" says what a refusal must mention.
 *
 * A victim defines `calls`, with a last one that has no kind. */
#ifndef ONE_CALL_H
#define ONE_CALL_H
#include "victim.h"
#include <signal.h>
#include <sys/syscall.h>

/* What the call waits for: a descriptor, or an address. */
static int number = -1;
static void *place;

struct call {
	const char *kind;
	void (*prepare)(void);
	/* Makes the call; whether it returned what it should. */
	int (*wait)(void);
	long syscall_number;
	void (*end)(void);
};
extern const struct call calls[];

static volatile int ending;
static int results = -1;

static const struct call *call;
static pthread_t waiter;
static volatile pid_t waiter_tid;

static void *make_call(void *nothing)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	waiter_tid = gettid();
	results = call->wait() ? ending ? 0 : -2 : errno;
	return nothing;
}

/* Whether the thread waits in its call, as the kernel shows it. */
static int is_waiting(void)
{
	char path[64];
	long found = -1;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter_tid);
	FILE *file = fopen(path, "r");
	CHECK(file != NULL);
	int count = fscanf(file, "%ld", &found);
	fclose(file);
	return count == 1 && found == call->syscall_number;
}

static void set_up(void)
{
	step_ms = 20;
	for (const struct call *known = calls; known->kind != NULL; known++)
		if (strcmp(kind, known->kind) == 0)
			call = known;
	if (call == NULL)
		FAIL("unknown kind %s", kind);
	call->prepare();
	CHECK(pthread_create(&waiter, NULL, make_call, NULL) == 0);
	while (waiter_tid == 0 || !is_waiting())
		sleep_ms(1);
	say_what_is_held(place, number);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	ending = 1;
	call->end();
	CHECK(pthread_join(waiter, NULL) == 0);
	say("the call %s", results == 0 ? "was right" : results == -2 ? "returned too early" : strerror(results));
	CHECK(results == 0);
}
#endif
