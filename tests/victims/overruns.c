/* Timers whose signals are blocked and pending: one signal for each timer, however often it has expired, which says how many
 * periods have passed since. By a real-time signal, an ordinary one, to a thread; and timers that have expired for good. */
#include "victim.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/signalfd.h>

enum { PERIOD_MS = 400, PERIODS = 3, VALUE = 4711 };
enum { REAL_TIME, ORDINARY, TO_A_THREAD, ONCE, ONCE_BY_WORK, TIMERS };
static timer_t timers[TIMERS];
static struct timespec begun;
static pid_t helper;
static pthread_t thread;
static sem_t asked, answered;

static int signal_of(int which)
{
	const int signals[] = { SIGRTMIN + 1, SIGUSR2, SIGRTMIN + 3, SIGRTMIN + 4, SIGRTMIN + 5 };
	return signals[which];
}

static sigset_t set_of(int which)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal_of(which));
	return set;
}

static int is_periodic(int which)
{
	return which < ONCE;
}

static int is_pending(int which)
{
	sigset_t pending;
	sigpending(&pending);
	return sigismember(&pending, signal_of(which));
}

static long ms_since_begun(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000;
}

/* Takes all signals of a timer at once: it must be one. Nothing is due right now, so none comes in between. */
static void take(int which)
{
	struct itimerspec left;
	do {
		sleep_ms(1);
		CHECK(timer_gettime(timers[which], &left) == 0);
	} while (is_periodic(which) && (left.it_value.tv_sec != 0 || left.it_value.tv_nsec < PERIOD_MS * 500000L));
	sigset_t set = set_of(which);
	int descriptor = signalfd(-1, &set, SFD_NONBLOCK);
	struct signalfd_siginfo found[4];
	ssize_t bytes = read(descriptor, found, sizeof found);
	CHECK(timer_getoverrun(timers[which]) == (int)found[0].ssi_overrun);
	close(descriptor);
	if (bytes != sizeof found[0])
		FAIL("timer %d has %zd signals pending", which, bytes / (ssize_t)sizeof found[0]);
	CHECK(found[0].ssi_code == SI_TIMER && found[0].ssi_int == VALUE + which);
	int overrun = (int)found[0].ssi_overrun;
	if (!is_periodic(which)) {
		CHECK(overrun == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
		return;
	}
	if (overrun < PERIODS || overrun > ms_since_begun() / PERIOD_MS)
		FAIL("timer %d has an overrun of %d in %ld ms", which, overrun, ms_since_begun());
}

static void *be_told(void *nothing)
{
	__atomic_store_n(&helper, gettid(), __ATOMIC_SEQ_CST);
	for (;;) {
		while (sem_wait(&asked) != 0)
			CHECK(errno == EINTR);
		CHECK(is_pending(TO_A_THREAD));
		if (__atomic_load_n(&helper, __ATOMIC_SEQ_CST) < 0) {
			take(TO_A_THREAD);
			return nothing;
		}
		sem_post(&answered);
	}
}

static void set_up(void)
{
	sigset_t all;
	sigemptyset(&all);
	for (int which = 0; which < TIMERS; which++)
		sigaddset(&all, signal_of(which));
	CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
	sem_init(&asked, 0, 0);
	sem_init(&answered, 0, 0);
	CHECK(pthread_create(&thread, NULL, be_told, NULL) == 0);
	while (__atomic_load_n(&helper, __ATOMIC_SEQ_CST) == 0)
		sleep_ms(1);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	static const clockid_t clocks[TIMERS] = { CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_MONOTONIC,
						  CLOCK_PROCESS_CPUTIME_ID };
	for (int which = 0; which < TIMERS; which++) {
		struct sigevent event = { .sigev_notify = which == TO_A_THREAD ? SIGEV_THREAD_ID : SIGEV_SIGNAL,
					  .sigev_signo = signal_of(which),
					  .sigev_value.sival_int = VALUE + which };
		if (which == TO_A_THREAD)
			event._sigev_un._tid = helper;
		CHECK(timer_create(clocks[which], &event, &timers[which]) == 0);
		struct itimerspec times = { .it_value = { 0, 1000000 } };
		times.it_interval.tv_nsec = is_periodic(which) ? PERIOD_MS * 1000000L : 0;
		CHECK(timer_settime(timers[which], 0, &times, NULL) == 0);
	}
	for (int which = 0; which < TIMERS; which++)
		while (which != TO_A_THREAD && !is_pending(which))
			;
	sleep_ms(5);
}

static void hold(int step)
{
	for (int which = 0; which < TIMERS; which++)
		CHECK(which == TO_A_THREAD || is_pending(which));
	sem_post(&asked);
	while (sem_wait(&answered) != 0)
		CHECK(errno == EINTR);
	say("step %d", step);
}

static void verify(void)
{
	sleep_ms((PERIODS + 1) * PERIOD_MS);
	for (int which = 0; which < TIMERS; which++)
		if (which != TO_A_THREAD)
			take(which);
	__atomic_store_n(&helper, -1, __ATOMIC_SEQ_CST);
	sem_post(&asked);
	CHECK(pthread_join(thread, NULL) == 0);
}
