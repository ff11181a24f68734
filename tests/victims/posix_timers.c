/* Timers of timer_create: by signal, to one thread, by a thread of the C library, silent, not running; ids with gaps. */
#include "victim.h"
#include <signal.h>
#include <sys/syscall.h>

enum { PERIOD_NS = 5 * 1000 * 1000, FAR_S = 1000, VALUE = 4711 };
static timer_t by_signal, to_a_thread, by_a_thread, silent, stopped, once;
static volatile sig_atomic_t signals, strangers, told_thread, expired_once;
static volatile int calls;
static pid_t helper;
static struct timespec left_before = { FAR_S, 0 };

static void count(int signal, siginfo_t *info, void *nothing)
{
	(void)nothing;
	if (signal == SIGRTMIN + 1 && info->si_code == SI_TIMER && info->si_value.sival_int == VALUE)
		signals++;
	else if (signal == SIGRTMIN + 2 && info->si_code == SI_TIMER && gettid() == helper)
		told_thread++;
	else if (signal == SIGRTMIN + 3)
		expired_once++;
	else
		strangers++;
}

static void call(union sigval value)
{
	if (value.sival_int == VALUE)
		calls++;
}

static void *be_told(void *nothing)
{
	__atomic_store_n(&helper, gettid(), __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return nothing;
}

static timer_t make(clockid_t clock, int notify, int signal)
{
	struct sigevent event = { .sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = VALUE };
	if (notify == SIGEV_THREAD)
		event.sigev_notify_function = call;
	if (notify == SIGEV_THREAD_ID)
		event._sigev_un._tid = helper;
	timer_t timer;
	CHECK(timer_create(clock, &event, &timer) == 0);
	return timer;
}

static void start(timer_t timer, time_t seconds, long period_ns)
{
	struct itimerspec times = { .it_value = { seconds, period_ns }, .it_interval = { 0, period_ns } };
	CHECK(timer_settime(timer, 0, &times, NULL) == 0);
}

static void set_up(void)
{
	struct sigaction action = { .sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART };
	for (int signal = SIGRTMIN + 1; signal <= SIGRTMIN + 3; signal++)
		CHECK(sigaction(signal, &action, NULL) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, be_told, NULL) == 0);
	while (__atomic_load_n(&helper, __ATOMIC_SEQ_CST) == 0)
		sleep_ms(1);
	by_signal = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 1);
	timer_t gap = make(CLOCK_REALTIME, SIGEV_NONE, 0);
	to_a_thread = make(CLOCK_REALTIME, SIGEV_THREAD_ID, SIGRTMIN + 2);
	timer_t gaps[20];
	for (int index = 0; index < 20; index++)
		gaps[index] = make(CLOCK_MONOTONIC, SIGEV_NONE, 0);
	by_a_thread = make(CLOCK_MONOTONIC, SIGEV_THREAD, 0);
	silent = make(CLOCK_BOOTTIME, SIGEV_NONE, 0);
	stopped = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 3);
	once = make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGRTMIN + 3);
	for (int index = 0; index < 20; index++)
		CHECK(timer_delete(gaps[index]) == 0);
	CHECK(timer_delete(gap) == 0);
	start(by_signal, 0, PERIOD_NS);
	start(to_a_thread, 0, PERIOD_NS);
	start(by_a_thread, 0, PERIOD_NS);
	start(silent, FAR_S, 0);
}

/* Whether `counter` counts on within ten seconds. */
static int goes_on(const volatile int *counter)
{
	int before = *counter;
	for (int ms = 0; ms < 10000 && *counter == before; ms++)
		sleep_ms(1);
	return *counter != before;
}

static void hold(int step)
{
	CHECK(goes_on(&signals) && goes_on(&told_thread) && goes_on(&calls));
	struct itimerspec times;
	CHECK(timer_gettime(by_signal, &times) == 0 && times.it_interval.tv_nsec == PERIOD_NS);
	CHECK(timer_gettime(stopped, &times) == 0 && times.it_value.tv_sec == 0 && times.it_value.tv_nsec == 0);
	/* What is left never grows, also from life to life. */
	CHECK(timer_gettime(silent, &times) == 0 && times.it_value.tv_sec > FAR_S - 300);
	CHECK(times.it_value.tv_sec < left_before.tv_sec ||
	      (times.it_value.tv_sec == left_before.tv_sec && times.it_value.tv_nsec <= left_before.tv_nsec));
	left_before = times.it_value;
	CHECK(strangers == 0 && expired_once == 0);
	say("step %d", step);
}

static void verify(void)
{
	/* The ids that are free are given to new timers. */
	timer_t another = make(CLOCK_MONOTONIC, SIGEV_NONE, 0);
	CHECK(another != by_signal && another != to_a_thread && another != silent && another != stopped);
	start(stopped, 0, PERIOD_NS);
	CHECK(goes_on(&expired_once));
	CHECK(timer_delete(stopped) == 0);
	struct itimerspec soon = { .it_value = { 0, PERIOD_NS } };
	CHECK(timer_settime(once, 0, &soon, NULL) == 0);
	int before = expired_once;
	for (volatile long work = 0; work < 2000000000 && expired_once == before; work++)
		;
	CHECK(expired_once == before + 1 && strangers == 0);
	timer_t all[] = { by_signal, to_a_thread, by_a_thread, silent, once, another };
	for (size_t index = 0; index < sizeof all / sizeof *all; index++)
		CHECK(timer_delete(all[index]) == 0);
}
