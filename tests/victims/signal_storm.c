/* Signals all the time: two threads that queue signals to themselves as fast as they can, a timer of 200 us, and one
 * thread that takes what another process queues. KIND "queued": the numbers 0, 1, 2 ... come from outside, and
 * LAST ends them.
 *
 * A signal that a thread sends to itself has been handled when the sending call returns, whatever happens in
 * between; each is checked, so one that is lost, doubled or late is noticed at once. */
#include "victim.h"
#include <signal.h>
#include <sys/time.h>

enum { STORMS = 2, LAST = 0x7fffffff, PATIENCE_MS = 60000 };

static pthread_t storms[STORMS], receiver;
static _Atomic int over;
static _Thread_local volatile int handled = -1, handlings;
static volatile sig_atomic_t ticks;
static _Atomic int next, wrong, last_came;

static void on_own(int signal, siginfo_t *origin, void *context)
{
	(void)signal;
	(void)context;
	handled = origin->si_value.sival_int;
	handlings++;
}

static void on_queued(int signal, siginfo_t *origin, void *context)
{
	(void)signal;
	(void)context;
	int value = origin->si_value.sival_int;
	if (origin->si_code != SI_QUEUE)
		wrong++;
	else if (value == LAST)
		last_came = 1;
	else if (value == next && !last_came)
		next++;
	else
		wrong++;
}

static void on_alarm(int signal)
{
	(void)signal;
	ticks++;
}

static void *storm(void *argument)
{
	for (int sent = 0; !over; sent++) {
		union sigval value = { .sival_int = sent };
		CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 4, value) == 0);
		CHECK(handled == sent && handlings == 1);
		handlings = 0;
	}
	return argument;
}

static void *receive(void *argument)
{
	sigset_t queued;
	sigemptyset(&queued);
	sigaddset(&queued, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_UNBLOCK, &queued, NULL) == 0);
	while (!over)
		pause();
	return argument;
}

static void set_up(void)
{
	sigset_t queued;
	struct sigaction own = { .sa_sigaction = on_own, .sa_flags = SA_SIGINFO };
	struct sigaction from_outside = { .sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct sigaction alarm_action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	sigemptyset(&queued);
	sigaddset(&queued, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &queued, NULL) == 0);
	CHECK(sigaction(SIGRTMIN + 4, &own, NULL) == 0 && sigaction(SIGRTMIN + 3, &from_outside, NULL) == 0);
	CHECK(sigaction(SIGALRM, &alarm_action, NULL) == 0);
	CHECK(pthread_create(&receiver, NULL, receive, NULL) == 0);
	for (int i = 0; i < STORMS; i++)
		CHECK(pthread_create(&storms[i], NULL, storm, NULL) == 0);
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

static void hold(int step)
{
	CHECK(wrong == 0);
	/* The timer goes on in every life. */
	int seen = ticks;
	for (int i = 0; i < PATIENCE_MS && ticks == seen; i++)
		sleep_ms(1);
	CHECK(ticks != seen);
	say("step %d", step);
}

static void verify(void)
{
	if (strcmp(kind, "queued") == 0) {
		for (int i = 0; i < PATIENCE_MS && !last_came; i++)
			sleep_ms(1);
		CHECK(last_came);
		say("received %d in order, %d out of order", next, wrong);
	}
	CHECK(wrong == 0);
	over = 1;
	for (int i = 0; i < STORMS; i++)
		CHECK(pthread_join(storms[i], NULL) == 0);
}
