/* Clocks that begin anew at a boot: they never go back nor leap away from the wall clock, the vdso and the kernel agree, and
 * whoever waits for an absolute time does not wait long. */
#include "victim.h"
#include <signal.h>
#include <sys/syscall.h>

/* Waits are short, so that one is always under way; what takes longer hangs. */
enum { WAIT_NS = 20 * 1000 * 1000, HANGS_MS = 15000, SECOND = 1000000000 };
/* How far the wall clock may be set in a test, s. */
enum { SET_MAX = 30 };

static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME };
enum { CLOCKS = sizeof clocks / sizeof *clocks };
static int64_t last[CLOCKS], from_wall[CLOCKS];
static volatile int absolute, since_boot, relative, waited, expired;

static int64_t by_vdso(clockid_t clock)
{
	struct timespec now;
	CHECK(clock_gettime(clock, &now) == 0);
	return now.tv_sec * (int64_t)SECOND + now.tv_nsec;
}

static int64_t by_kernel(clockid_t clock)
{
	struct timespec now;
	CHECK(syscall(SYS_clock_gettime, clock, &now) == 0);
	return now.tv_sec * (int64_t)SECOND + now.tv_nsec;
}

static struct timespec soon(clockid_t clock)
{
	int64_t then = by_vdso(clock) + WAIT_NS;
	return (struct timespec){ then / SECOND, then % SECOND };
}

static void sleep_until(clockid_t clock, volatile int *counter)
{
	for (;; ++*counter) {
		struct timespec then = soon(clock);
		while (clock_nanosleep(clock, TIMER_ABSTIME, &then, NULL) == EINTR)
			;
		int64_t early = then.tv_sec * (int64_t)SECOND + then.tv_nsec - by_vdso(clock);
		if (early > 0)
			FAIL("clock %d went back by %lld s, or a sleep has ended early", clock, (long long)early / SECOND);
	}
}

static void *sleep_absolutely(void *nothing)
{
	sleep_until(CLOCK_MONOTONIC, &absolute);
	return nothing;
}

static void *sleep_since_boot(void *nothing)
{
	sleep_until(CLOCK_BOOTTIME, &since_boot);
	return nothing;
}

static void *sleep_relatively(void *nothing)
{
	for (;; relative++)
		sleep_ms(WAIT_NS / 1000000);
	return nothing;
}

/* Nobody ever signals the condition: each wait ends at its time. */
static void *wait_for_a_condition(void *nothing)
{
	pthread_condattr_t attributes;
	pthread_cond_t condition;
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	CHECK(pthread_condattr_init(&attributes) == 0);
	CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
	CHECK(pthread_cond_init(&condition, &attributes) == 0);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	for (;; waited++) {
		struct timespec then = soon(CLOCK_MONOTONIC);
		int answer;
		while ((answer = pthread_cond_timedwait(&condition, &mutex, &then)) == 0)
			;
		CHECK(answer == ETIMEDOUT);
	}
	return nothing;
}

static void count(int signal)
{
	(void)signal;
	expired++;
}

static void set_up(void)
{
	int64_t wall = by_kernel(CLOCK_REALTIME);
	for (int clock = 0; clock < CLOCKS; clock++) {
		last[clock] = by_kernel(clocks[clock]);
		from_wall[clock] = wall - last[clock];
	}
	void *(*const threads[])(void *) = { sleep_absolutely, sleep_since_boot, sleep_relatively, wait_for_a_condition };
	for (size_t index = 0; index < sizeof threads / sizeof *threads; index++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, threads[index], NULL) == 0);
	}
	struct sigaction action = { .sa_handler = count, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1 };
	timer_t timer;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	struct itimerspec times = { .it_value = soon(CLOCK_MONOTONIC), .it_interval = { 0, WAIT_NS } };
	CHECK(timer_settime(timer, TIMER_ABSTIME, &times, NULL) == 0);
}

static void must_not_go_back(int clock, int64_t now)
{
	if (now < last[clock])
		FAIL("clock %d went back by %lld s", clocks[clock], (long long)(last[clock] - now) / SECOND);
}

static void go_on(const volatile int *counter, const char *what)
{
	int before = *counter;
	for (int ms = 0; ms < HANGS_MS && *counter == before; ms++) {
		sleep_ms(1);
		must_not_go_back(0, by_kernel(clocks[0]));
	}
	if (*counter == before)
		FAIL("%s hangs", what);
}

static void hold(int step)
{
	for (int clock = 0; clock < CLOCKS; clock++) {
		int64_t before = by_kernel(clocks[clock]), between = by_vdso(clocks[clock]), after = by_kernel(clocks[clock]);
		must_not_go_back(clock, before);
		CHECK(before <= between && between <= after);
		last[clock] = after;
		int64_t leap = (by_kernel(CLOCK_REALTIME) - after - from_wall[clock]) / SECOND;
		if (leap > SET_MAX || leap < -SET_MAX)
			FAIL("clock %d is %lld s from where it was beside the wall clock", clocks[clock], (long long)leap);
	}
	go_on(&absolute, "an absolute sleep");
	go_on(&since_boot, "an absolute sleep by the time since boot");
	go_on(&relative, "a relative sleep");
	go_on(&waited, "a timed wait for a condition");
	go_on(&expired, "a timer");
	say("step %d", step);
}

static void verify(void)
{
	CHECK(by_kernel(CLOCK_BOOTTIME) + SECOND > by_kernel(CLOCK_MONOTONIC));
}
