/* Timers and signals that are descriptors: relative, absolute, periodic, expired and not read, not set, over three clocks;
 * a signalfd with what is queued for it; an epoll set that watches them. */
#include "victim.h"
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

enum { FAR_S = 1000, SLACK_MS = 300, VALUE = 4711 };
static int relative, absolute[3], periodic, expired, expired_periodic, unset, signals, epoll, fast;
static const clockid_t clocks[3] = { CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME };
static int64_t deadline[3], left_before, started;

static int64_t ns_of(struct timespec time)
{
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int64_t now(clockid_t clock)
{
	struct timespec time;
	CHECK(clock_gettime(clock, &time) == 0);
	return ns_of(time);
}

static int make(clockid_t clock, int kind, int setting, int64_t value, int64_t interval)
{
	int timer = timerfd_create(clock, kind);
	CHECK(timer >= 0);
	struct itimerspec time = { { interval / 1000000000, interval % 1000000000 },
				   { value / 1000000000, value % 1000000000 } };
	CHECK(timerfd_settime(timer, setting, &time, NULL) == 0);
	return timer;
}

static int64_t left(int timer, int64_t interval)
{
	struct itimerspec time;
	CHECK(timerfd_gettime(timer, &time) == 0);
	CHECK(ns_of(time.it_interval) == interval);
	return ns_of(time.it_value);
}

static int is_readable(int file, int ms)
{
	struct pollfd polled = { file, POLLIN, 0 };
	return poll(&polled, 1, ms) == 1;
}

static void set_up(void)
{
	const int64_t far = FAR_S * 1000000000LL;
	started = now(CLOCK_MONOTONIC);
	relative = make(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC, 0, far, 0);
	left_before = far;
	for (int i = 0; i < 3; i++) {
		deadline[i] = now(clocks[i]) + far;
		absolute[i] = make(clocks[i], 0, TFD_TIMER_ABSTIME, deadline[i], i);
	}
	periodic = make(CLOCK_MONOTONIC, TFD_NONBLOCK, 0, far, far / 2);
	expired = make(CLOCK_REALTIME, TFD_NONBLOCK, TFD_TIMER_ABSTIME, 1, 0);
	expired_periodic = make(CLOCK_BOOTTIME, TFD_NONBLOCK, 0, 1, far);
	fast = make(CLOCK_MONOTONIC, TFD_NONBLOCK, 0, 1000000, 1000000);
	CHECK((unset = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)) >= 0);
	CHECK(is_readable(expired, 10000) && is_readable(expired_periodic, 10000));

	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR2);
	sigaddset(&wanted, SIGRTMIN + 5);
	CHECK(pthread_sigmask(SIG_BLOCK, &wanted, NULL) == 0);
	CHECK((signals = signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC)) >= 0);
	CHECK(raise(SIGUSR2) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(sigqueue(getpid(), SIGRTMIN + 5, (union sigval){ .sival_int = VALUE + i }) == 0);

	CHECK((epoll = epoll_create1(0)) >= 0);
	for (int file = 0; file < 2; file++) {
		struct epoll_event event = { EPOLLIN, { .u64 = (uint64_t)file } };
		CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, file ? signals : expired, &event) == 0);
	}
}

static void hold(int step)
{
	/* What is left of a relative timer passes while the program lives: never more than the step before, and never less
	 * than what the clock allows. */
	int64_t rest = left(relative, 0), passed = now(CLOCK_MONOTONIC) - started;
	CHECK(rest <= left_before && rest >= FAR_S * 1000000000LL - passed - SLACK_MS * 1000000LL);
	left_before = rest;
	for (int i = 0; i < 3; i++) {
		int64_t wrong = left(absolute[i], i) - (deadline[i] - now(clocks[i]));
		if (wrong < -SLACK_MS * 1000000LL || wrong > SLACK_MS * 1000000LL)
			FAIL("the absolute timer of clock %d is wrong by %lld ns", clocks[i], (long long)wrong);
	}
	CHECK(left(periodic, FAR_S * 500000000LL) > 0);
	CHECK(left(unset, 0) == 0 && !is_readable(unset, 0));
	struct epoll_event events[4];
	CHECK(epoll_wait(epoll, events, 4, 0) == 2);
	CHECK(fcntl(relative, F_GETFD) == FD_CLOEXEC && fcntl(periodic, F_GETFD) == 0);
	CHECK(fcntl(signals, F_GETFD) == FD_CLOEXEC && (fcntl(signals, F_GETFL) & O_NONBLOCK) != 0);
	CHECK((fcntl(absolute[0], F_GETFL) & O_NONBLOCK) == 0);
	/* It goes on ticking in every life. */
	uint64_t ticks = 0;
	CHECK(is_readable(fast, 10000) && read(fast, &ticks, sizeof ticks) == sizeof ticks && ticks >= 1);
	say("step %d", step);
}

static void verify(void)
{
	uint64_t ticks = 0;
	CHECK(read(expired, &ticks, sizeof ticks) == sizeof ticks && ticks == 1);
	CHECK(read(expired, &ticks, sizeof ticks) == -1 && errno == EAGAIN);
	CHECK(read(expired_periodic, &ticks, sizeof ticks) == sizeof ticks && ticks == 1);
	CHECK(left(expired_periodic, FAR_S * 1000000000LL) > 0);
	CHECK(read(relative, &ticks, sizeof ticks) == -1 && errno == EAGAIN);
	struct signalfd_siginfo info;
	CHECK(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR2);
	for (int i = 0; i < 3; i++) {
		CHECK(read(signals, &info, sizeof info) == sizeof info);
		CHECK((int)info.ssi_signo == SIGRTMIN + 5 && info.ssi_int == VALUE + i);
	}
	CHECK(read(signals, &info, sizeof info) == -1 && errno == EAGAIN);
}
