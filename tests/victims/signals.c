/* Signal state: actions, masks, alternate stacks, queued signals with their values, interval timers. */
#include "victim.h"
#include <signal.h>
#include <sys/time.h>

enum { QUEUED = 5, ALTERNATE_BYTES = 64 * 1024 };

static char alternate[ALTERNATE_BYTES];
static volatile sig_atomic_t ticks, on_alternate, suspended_woken;
static sigset_t held;
static pthread_t suspended;
static pid_t self;

static void on_alarm(int signal)
{
	(void)signal;
	ticks++;
}

static void on_usr2(int signal, siginfo_t *origin, void *context)
{
	char here;
	(void)signal;
	(void)context;
	on_alternate = &here >= alternate && &here < alternate + ALTERNATE_BYTES && origin->si_pid == self;
}

static void on_wake(int signal)
{
	(void)signal;
	suspended_woken = 1;
}

/* Sleeps in sigsuspend with everything blocked but the one signal that ends it. */
static void *suspend(void *argument)
{
	sigset_t all_but_one;
	sigfillset(&all_but_one);
	sigdelset(&all_but_one, SIGRTMIN + 5);
	while (!suspended_woken)
		sigsuspend(&all_but_one);
	return argument;
}

static void queue_signals(void)
{
	for (int i = 0; i < QUEUED; i++) {
		union sigval value = { .sival_ptr = (void *)(uintptr_t)(0x1000 + i) };
		CHECK(sigqueue(self, SIGRTMIN + 1, value) == 0);
		value.sival_ptr = (void *)(uintptr_t)(0x2000 + i);
		CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 2, value) == 0);
	}
	CHECK(kill(self, SIGTERM) == 0 && kill(self, SIGTERM) == 0);
}

static void set_up(void)
{
	self = getpid();
	sigemptyset(&held);
	sigaddset(&held, SIGRTMIN + 1);
	sigaddset(&held, SIGRTMIN + 2);
	sigaddset(&held, SIGTERM);
	sigset_t threads_mask = held;
	sigaddset(&threads_mask, SIGRTMIN + 5);
	sigaddset(&threads_mask, SIGALRM);
	CHECK(pthread_sigmask(SIG_BLOCK, &threads_mask, NULL) == 0);
	struct sigaction wake = { .sa_handler = on_wake };
	CHECK(sigaction(SIGRTMIN + 5, &wake, NULL) == 0);
	CHECK(pthread_create(&suspended, NULL, suspend, NULL) == 0);
	CHECK(pthread_sigmask(SIG_SETMASK, &held, NULL) == 0);

	stack_t stack = { .ss_sp = alternate, .ss_size = ALTERNATE_BYTES };
	struct sigaction usr2 = { .sa_sigaction = on_usr2, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	struct sigaction alarm_action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct sigaction ignored = { .sa_handler = SIG_IGN };
	sigaddset(&usr2.sa_mask, SIGRTMIN + 7);
	CHECK(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR2, &usr2, NULL) == 0);
	CHECK(sigaction(SIGALRM, &alarm_action, NULL) == 0 && sigaction(SIGHUP, &ignored, NULL) == 0);
	struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, once = { { 0, 0 }, { 5000, 0 } };
	struct itimerval seldom = { { 3000, 0 }, { 4000, 0 } };
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &once, NULL) == 0);
	CHECK(setitimer(ITIMER_PROF, &seldom, NULL) == 0);
	queue_signals();
}

static void check_actions(void)
{
	struct sigaction found;
	stack_t stack;
	sigset_t mask;
	CHECK(sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_sigaction == on_usr2);
	CHECK((found.sa_flags & (SA_SIGINFO | SA_ONSTACK | SA_RESTART)) == (SA_SIGINFO | SA_ONSTACK | SA_RESTART));
	CHECK(sigismember(&found.sa_mask, SIGRTMIN + 7) == 1 && sigismember(&found.sa_mask, SIGRTMIN + 6) == 0);
	CHECK(sigaction(SIGHUP, NULL, &found) == 0 && found.sa_handler == SIG_IGN);
	CHECK(sigaction(SIGINT, NULL, &found) == 0 && found.sa_handler == SIG_DFL);
	CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == alternate && stack.ss_size == ALTERNATE_BYTES);
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	for (int signal = 1; signal < 32; signal++)
		CHECK(sigismember(&mask, signal) == sigismember(&held, signal));
}

static void check_timers(void)
{
	struct itimerval found;
	CHECK(getitimer(ITIMER_REAL, &found) == 0 && found.it_interval.tv_usec == 5000);
	CHECK(getitimer(ITIMER_VIRTUAL, &found) == 0 && found.it_interval.tv_sec == 0);
	CHECK(found.it_value.tv_sec > 4900 && found.it_value.tv_sec <= 5000);
	CHECK(getitimer(ITIMER_PROF, &found) == 0 && found.it_interval.tv_sec == 3000);
	CHECK(found.it_value.tv_sec > 3900 && found.it_value.tv_sec <= 4000);
}

static void hold(int step)
{
	sigset_t pending;
	check_actions();
	check_timers();
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGRTMIN + 1) && sigismember(&pending, SIGTERM));
	/* The timer ticks in every life. */
	int seen = ticks;
	for (int i = 0; i < 1000 && ticks < seen + 2; i++)
		sleep_ms(1);
	CHECK(ticks >= seen + 2);
	on_alternate = 0;
	CHECK(kill(self, SIGUSR2) == 0);
	for (int i = 0; i < 1000 && !on_alternate; i++)
		sleep_ms(1);
	CHECK(on_alternate);
	say("step %d", step);
}

static void take(int signal, uintptr_t first)
{
	struct timespec none = { 0, 0 };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	for (int i = 0; i < QUEUED; i++) {
		siginfo_t origin;
		CHECK(sigtimedwait(&set, &origin, &none) == signal);
		CHECK(origin.si_code == SI_QUEUE && origin.si_pid == self);
		CHECK((uintptr_t)origin.si_value.sival_ptr == first + (uintptr_t)i);
	}
	CHECK(sigtimedwait(&set, NULL, &none) == -1 && errno == EAGAIN);
}

static void verify(void)
{
	struct timespec none = { 0, 0 };
	sigset_t term;
	take(SIGRTMIN + 1, 0x1000);
	take(SIGRTMIN + 2, 0x2000);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	CHECK(sigtimedwait(&term, NULL, &none) == SIGTERM && sigtimedwait(&term, NULL, &none) == -1);
	CHECK(!suspended_woken && pthread_kill(suspended, SIGRTMIN + 5) == 0);
	CHECK(pthread_join(suspended, NULL) == 0 && suspended_woken);
}
