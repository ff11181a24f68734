/* Threads that wait in system calls, each of which must return what it would have returned undisturbed.
 *
 * KIND "all": one thread per call makes it again and again while the main thread prints steps; at the end a table
 * says per call whether every return value, errno and waiting time was right. KIND "only:CALL": the main thread
 * itself makes this one call at each step and prints "interrupted" where it returned EINTR, which a checkpoint
 * triggered by signal may cause for the calls that the documentation lists, and a checkpoint by command never. KIND "asks":
 * as "all", and the main thread asks for a checkpoint at every twentieth step. */
#include "victim.h"
#include "../../preload/include/ckpt.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>

enum { WAIT_MS = 70 };

struct call {
	const char *name;
	/* Makes the call once; returns 0 when right, EINTR when interrupted, -1 and sets `wrong` otherwise. */
	int (*make)(void);
	int endless;
	const char *wrong;
	int rounds, interruptions;
	pthread_t thread;
};

static int quiet_pipe[2], wake_pipe[2], epoll, wake_event;
static sem_t never_posted, posted_at_end;
static uint32_t futex_word, futex_at_end;
static __thread const char *wrong;
static volatile int ending;

static int64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static struct timespec wait_time(void)
{
	return (struct timespec){ 0, WAIT_MS * 1000000L };
}

/* A call that must return `expected` with `expected_errno` not before WAIT_MS. */
static int judge(int64_t begun_us, long found, long expected, int expected_errno)
{
	int error = errno;
	if (found == -1 && error == EINTR)
		return EINTR;
	wrong = found != expected                          ? "wrong return value"
		: found == -1 && error != expected_errno ? "wrong errno"
		: now_us() - begun_us < WAIT_MS * 1000L  ? "returned too early"
							   : NULL;
	return wrong ? -1 : 0;
}

static int call_nanosleep(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	return judge(begun, nanosleep(&time, NULL), 0, 0);
}

static int call_clock_nanosleep(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
	return judge(begun, errno ? -1 : 0, 0, 0);
}

static int call_clock_nanosleep_absolute(void)
{
	int64_t begun = now_us();
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_nsec += WAIT_MS * 1000000L;
	time.tv_sec += time.tv_nsec / 1000000000L;
	time.tv_nsec %= 1000000000L;
	errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
	return judge(begun, errno ? -1 : 0, 0, 0);
}

static int call_usleep(void)
{
	int64_t begun = now_us();
	return judge(begun, usleep(WAIT_MS * 1000), 0, 0);
}

static int call_poll(void)
{
	int64_t begun = now_us();
	struct pollfd polled = { quiet_pipe[0], POLLIN, 0 };
	return judge(begun, poll(&polled, 1, WAIT_MS), 0, 0);
}

static int call_ppoll(void)
{
	int64_t begun = now_us();
	struct pollfd polled = { quiet_pipe[0], POLLIN, 0 };
	struct timespec time = wait_time();
	return judge(begun, ppoll(&polled, 1, &time, NULL), 0, 0);
}

static int call_select(void)
{
	int64_t begun = now_us();
	struct timeval time = { 0, WAIT_MS * 1000 };
	fd_set set;
	FD_ZERO(&set);
	FD_SET(quiet_pipe[0], &set);
	return judge(begun, select(quiet_pipe[0] + 1, &set, NULL, NULL, &time), 0, 0);
}

static int call_pselect(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	fd_set set;
	FD_ZERO(&set);
	FD_SET(quiet_pipe[0], &set);
	return judge(begun, pselect(quiet_pipe[0] + 1, &set, NULL, NULL, &time, NULL), 0, 0);
}

static int call_epoll_wait(void)
{
	int64_t begun = now_us();
	struct epoll_event event;
	return judge(begun, epoll_wait(epoll, &event, 1, WAIT_MS), 0, 0);
}

static int call_epoll_pwait2(void)
{
	int64_t begun = now_us();
	struct epoll_event event;
	struct timespec time = wait_time();
	return judge(begun, syscall(SYS_epoll_pwait2, epoll, &event, 1, &time, NULL, 8), 0, 0);
}

static int call_futex_timeout(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	return judge(begun, syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0), -1, ETIMEDOUT);
}

static struct timespec deadline(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	time.tv_nsec += (WAIT_MS + 1) * 1000000L;
	time.tv_sec += time.tv_nsec / 1000000000L;
	time.tv_nsec %= 1000000000L;
	return time;
}

static int call_sem_timedwait(void)
{
	int64_t begun = now_us();
	struct timespec time = deadline(CLOCK_REALTIME);
	return judge(begun, sem_timedwait(&never_posted, &time), -1, ETIMEDOUT);
}

static int call_cond_timedwait(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
	int64_t begun = now_us();
	struct timespec time = deadline(CLOCK_REALTIME);
	pthread_mutex_lock(&lock);
	errno = pthread_cond_timedwait(&condition, &lock, &time);
	int answer = judge(begun, errno ? -1 : 0, -1, ETIMEDOUT);
	pthread_mutex_unlock(&lock);
	return answer;
}

static int call_sigtimedwait(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	int answer = judge(begun, sigtimedwait(&set, NULL, &time), -1, EAGAIN);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return answer;
}

/* Calls without a time-out: made once, ended by the main thread at the end. */

static int until_end(long found, long expected)
{
	int error = errno;
	if (found == -1 && error == EINTR)
		return EINTR;
	wrong = found != expected ? "wrong return value" : !ending ? "returned too early" : NULL;
	return wrong ? -1 : 0;
}

static int call_read_pipe(void)
{
	char byte;
	return until_end(read(wake_pipe[0], &byte, 1), 1);
}

static int call_read_eventfd(void)
{
	uint64_t count;
	return until_end(read(wake_event, &count, sizeof count), sizeof count);
}

static int call_poll_endless(void)
{
	struct pollfd polled = { wake_pipe[0], POLLHUP, 0 };
	return until_end(poll(&polled, 1, -1), 1);
}

static int call_futex(void)
{
	long found = syscall(SYS_futex, &futex_at_end, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	return until_end(found == -1 && errno == EAGAIN ? 0 : found, 0);
}

static int call_sem_wait(void)
{
	return until_end(sem_wait(&posted_at_end), 0);
}

static void nothing(int signal)
{
	(void)signal;
}

/* pause and sigsuspend return EINTR by nature: right only once the main thread has sent its signal. */
static int call_pause(void)
{
	pause();
	if (!ending)
		return EINTR;
	return 0;
}

static int call_sigwait(void)
{
	sigset_t set;
	int got = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	long answer = sigwait(&set, &got);
	return until_end(answer == 0 ? got : -1, SIGRTMIN + 2);
}

static struct call calls[] = {
	{ .name = "nanosleep", .make = call_nanosleep },
	{ .name = "clock_nanosleep", .make = call_clock_nanosleep },
	{ .name = "clock_nanosleep_absolute", .make = call_clock_nanosleep_absolute },
	{ .name = "usleep", .make = call_usleep },
	{ .name = "poll", .make = call_poll },
	{ .name = "ppoll", .make = call_ppoll },
	{ .name = "select", .make = call_select },
	{ .name = "pselect", .make = call_pselect },
	{ .name = "epoll_wait", .make = call_epoll_wait },
	{ .name = "epoll_pwait2", .make = call_epoll_pwait2 },
	{ .name = "futex_timeout", .make = call_futex_timeout },
	{ .name = "sem_timedwait", .make = call_sem_timedwait },
	{ .name = "pthread_cond_timedwait", .make = call_cond_timedwait },
	{ .name = "sigtimedwait", .make = call_sigtimedwait },
	{ .name = "read_pipe", .make = call_read_pipe, .endless = 1 },
	{ .name = "read_eventfd", .make = call_read_eventfd, .endless = 1 },
	{ .name = "poll_endless", .make = call_poll_endless, .endless = 1 },
	{ .name = "futex", .make = call_futex, .endless = 1 },
	{ .name = "sem_wait", .make = call_sem_wait, .endless = 1 },
	{ .name = "pause", .make = call_pause, .endless = 1 },
	{ .name = "sigwait", .make = call_sigwait, .endless = 1 },
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static struct call *only;

static void *caller(void *argument)
{
	struct call *call = argument;
	do {
		int answer = call->make();
		call->rounds++;
		if (answer == EINTR)
			call->interruptions++;
		else if (answer != 0)
			call->wrong = wrong;
	} while (!ending && call->wrong == NULL);
	return NULL;
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = nothing };
	step_ms = 20;
	CHECK(malloc(100000)); /* something for checkpoints of data */
	CHECK(pipe(quiet_pipe) == 0 && pipe(wake_pipe) == 0);
	CHECK((wake_event = eventfd(0, 0)) >= 0 && (epoll = epoll_create1(0)) >= 0);
	struct epoll_event event = { EPOLLIN, { .fd = quiet_pipe[0] } };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, quiet_pipe[0], &event) == 0);
	CHECK(sem_init(&never_posted, 0, 0) == 0 && sem_init(&posted_at_end, 0, 0) == 0);
	CHECK(sigaction(SIGRTMIN + 1, &action, NULL) == 0);
	if (strncmp(kind, "only:", 5) == 0) {
		step_ms = 0;
		for (int i = 0; i < CALLS; i++)
			if (strcmp(calls[i].name, kind + 5) == 0)
				only = &calls[i];
		CHECK(only != NULL && !only->endless);
		return;
	}
	for (int i = 0; i < CALLS; i++)
		CHECK(pthread_create(&calls[i].thread, NULL, caller, &calls[i]) == 0);
}

static void hold(int step)
{
	if (only == NULL) {
		if (strcmp(kind, "asks") == 0 && step % 20 == 0 && ckpt_checkpoint)
			CHECK(ckpt_checkpoint() == 0);
		say("step %d", step);
		return;
	}
	int answer = only->make();
	say("step %d %s", step, answer == 0 ? "ok" : answer == EINTR ? "interrupted" : wrong);
}

static void verify(void)
{
	if (only != NULL)
		return;
	ending = 1;
	uint64_t one = 1;
	futex_at_end = 1;
	syscall(SYS_futex, &futex_at_end, FUTEX_WAKE_PRIVATE, 1);
	CHECK(sem_post(&posted_at_end) == 0 && write(wake_event, &one, sizeof one) == sizeof one);
	CHECK(write(wake_pipe[1], "x", 1) == 1);
	close(wake_pipe[1]);
	for (int i = 0; i < CALLS; i++) {
		struct call *call = &calls[i];
		if (strcmp(call->name, "pause") == 0)
			pthread_kill(call->thread, SIGRTMIN + 1);
		if (strcmp(call->name, "sigwait") == 0)
			pthread_kill(call->thread, SIGRTMIN + 2);
		pthread_join(call->thread, NULL);
		CHECK(call->rounds > 0);
		say("%s %s interruptions %d", call->name, call->wrong ? call->wrong : "ok", call->interruptions);
		if (call->wrong)
			FAIL("%s", call->name);
	}
}
