/* Threads that wait in system calls, each of which must return what it would have returned undisturbed.
 *
 * KIND "all": one thread per call makes it again and again while the main thread prints steps; at the end a table
 * says per call whether every return value, errno and waiting time was right. KIND "only:CALL": the main thread
 * itself makes this one call at each step and prints "interrupted" where it returned EINTR, which a checkpoint
 * triggered by signal may cause for the calls that the documentation lists, and a checkpoint by command never. KIND "asks":
 * as "all", and the main thread asks for a checkpoint at every twentieth step. KIND "own": as "all", without what lies outside
 * of the program, so that it can be restarted from one checkpoint again and again. */
#include "victim.h"
#include "../../preload/include/ckpt.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { WAIT_MS = 70 };

struct call {
	const char *name;
	/* Makes the call once; returns 0 when right, EINTR when interrupted, -1 and sets `wrong` otherwise. */
	int (*make)(void);
	int endless;
	/* The real-time signal that ends it, counted from SIGRTMIN; 0 for none. */
	int ended_by;
	/* It waits for something that lies outside of the program. */
	int outside;
	const char *wrong;
	int rounds, interruptions;
	pthread_t thread;
};

static int quiet_pipe[2], wake_pipe[2], full_pipe[2], epoll, wake_event, full_event, timer, quiet_timer;
static int semaphores, empty_queue, full_queue;
static sem_t never_posted, posted_at_end;
static uint32_t futex_word, futex_at_end;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, condition_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t at_end = PTHREAD_COND_INITIALIZER;
/* Descriptions through which the main thread holds a lock that a thread waits for through another one. */
static int flocked, ranged, described;
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

static int call_clock_nanosleep_realtime(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	errno = clock_nanosleep(CLOCK_REALTIME, 0, &time, NULL);
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

static int call_futex_bitset(void)
{
	int64_t begun = now_us();
	struct timespec time = deadline(CLOCK_MONOTONIC);
	long found = syscall(SYS_futex, &futex_word, FUTEX_WAIT_BITSET_PRIVATE, 0, &time, NULL, 1);
	return judge(begun, found, -1, ETIMEDOUT);
}

static int call_sem_clockwait(void)
{
	int64_t begun = now_us();
	struct timespec time = deadline(CLOCK_MONOTONIC);
	return judge(begun, sem_clockwait(&never_posted, CLOCK_MONOTONIC, &time), -1, ETIMEDOUT);
}

static int call_semtimedop(void)
{
	int64_t begun = now_us();
	struct timespec time = wait_time();
	struct sembuf take = { .sem_num = 0, .sem_op = -1 };
	return judge(begun, semtimedop(semaphores, &take, 1, &time), -1, EAGAIN);
}

static int call_read_timerfd(void)
{
	int64_t begun = now_us();
	struct itimerspec once = { .it_value = wait_time() };
	uint64_t expiries;
	CHECK(timerfd_settime(timer, 0, &once, NULL) == 0);
	return judge(begun, read(timer, &expiries, sizeof expiries), sizeof expiries, 0);
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

static int call_write_eventfd(void)
{
	uint64_t one = 1;
	return until_end(write(full_event, &one, sizeof one), sizeof one);
}

static int call_write_full_pipe(void)
{
	return until_end(write(full_pipe[1], "x", 1), 1);
}

static int call_read_timerfd_endless(void)
{
	uint64_t expiries;
	return until_end(read(quiet_timer, &expiries, sizeof expiries), sizeof expiries);
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

static int call_futex_bitset_endless(void)
{
	long found = syscall(SYS_futex, &futex_at_end, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 1);
	return until_end(found == -1 && errno == EAGAIN ? 0 : found, 0);
}

static int call_mutex_lock(void)
{
	int answer = until_end(pthread_mutex_lock(&held), 0);
	pthread_mutex_unlock(&held);
	return answer;
}

static int call_rwlock_rdlock(void)
{
	int answer = until_end(pthread_rwlock_rdlock(&written), 0);
	pthread_rwlock_unlock(&written);
	return answer;
}

static int call_rwlock_wrlock(void)
{
	int answer = until_end(pthread_rwlock_wrlock(&written), 0);
	pthread_rwlock_unlock(&written);
	return answer;
}

static int call_cond_wait(void)
{
	pthread_mutex_lock(&condition_lock);
	int answer = ending ? 0 : until_end(pthread_cond_wait(&at_end, &condition_lock), 0);
	pthread_mutex_unlock(&condition_lock);
	return answer;
}

static int call_semop(void)
{
	struct sembuf take = { .sem_num = 1, .sem_op = -1 };
	return until_end(semop(semaphores, &take, 1), 0);
}

struct message {
	long type;
	char text[1024];
};

static int call_msgrcv(void)
{
	struct message message;
	return until_end(msgrcv(empty_queue, &message, sizeof message.text, 0, 0), 3);
}

static int call_msgsnd(void)
{
	struct message message = { .type = 1 };
	return until_end(msgsnd(full_queue, &message, sizeof message.text, 0), 0);
}

static int opened(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	CHECK(file >= 0);
	return file;
}

static struct flock all_of_it(short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET };
}

static int call_flock(void)
{
	return until_end(flock(opened("flocked"), LOCK_EX), 0);
}

static int call_setlkw(void)
{
	struct flock lock = all_of_it(F_WRLCK);
	return until_end(fcntl(opened("ranged"), F_SETLKW, &lock), 0);
}

static int call_ofd_setlkw(void)
{
	struct flock lock = all_of_it(F_WRLCK);
	return until_end(fcntl(opened("described"), F_OFD_SETLKW, &lock), 0);
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

static int call_sigsuspend(void)
{
	sigset_t set, none;
	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigsuspend(&none);
	return ending ? 0 : EINTR;
}

/* Unlike sigwait, which makes its call again by itself, it tells of an interruption. */
static int call_sigwaitinfo(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return until_end(sigwaitinfo(&set, NULL), SIGRTMIN + 2);
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
	{ .name = "clock_nanosleep_realtime", .make = call_clock_nanosleep_realtime },
	{ .name = "futex_bitset", .make = call_futex_bitset },
	{ .name = "sem_clockwait", .make = call_sem_clockwait },
	{ .name = "semtimedop", .make = call_semtimedop, .outside = 1 },
	{ .name = "read_timerfd", .make = call_read_timerfd },
	{ .name = "read_pipe", .make = call_read_pipe, .endless = 1 },
	{ .name = "read_eventfd", .make = call_read_eventfd, .endless = 1 },
	{ .name = "poll_endless", .make = call_poll_endless, .endless = 1 },
	{ .name = "futex", .make = call_futex, .endless = 1 },
	{ .name = "sem_wait", .make = call_sem_wait, .endless = 1 },
	{ .name = "read_timerfd_endless", .make = call_read_timerfd_endless, .endless = 1 },
	{ .name = "write_eventfd", .make = call_write_eventfd, .endless = 1 },
	{ .name = "write_full_pipe", .make = call_write_full_pipe, .endless = 1 },
	{ .name = "futex_bitset_endless", .make = call_futex_bitset_endless, .endless = 1 },
	{ .name = "pthread_mutex_lock", .make = call_mutex_lock, .endless = 1 },
	{ .name = "pthread_rwlock_rdlock", .make = call_rwlock_rdlock, .endless = 1 },
	{ .name = "pthread_rwlock_wrlock", .make = call_rwlock_wrlock, .endless = 1 },
	{ .name = "pthread_cond_wait", .make = call_cond_wait, .endless = 1 },
	{ .name = "semop", .make = call_semop, .outside = 1, .endless = 1 },
	{ .name = "msgrcv", .make = call_msgrcv, .outside = 1, .endless = 1 },
	{ .name = "msgsnd", .make = call_msgsnd, .outside = 1, .endless = 1 },
	{ .name = "flock", .make = call_flock, .endless = 1 },
	{ .name = "F_SETLKW", .make = call_setlkw, .endless = 1 },
	{ .name = "F_OFD_SETLKW", .make = call_ofd_setlkw, .endless = 1 },
	{ .name = "pause", .make = call_pause, .endless = 1, .ended_by = 1 },
	{ .name = "sigsuspend", .make = call_sigsuspend, .endless = 1, .ended_by = 1 },
	{ .name = "sigwait", .make = call_sigwait, .endless = 1, .ended_by = 2 },
	{ .name = "sigwaitinfo", .make = call_sigwaitinfo, .endless = 1, .ended_by = 2 },
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static struct call *only;
static int own;

static int is_made(const struct call *call)
{
	return !own || !call->outside;
}

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

/* What System V objects there are, "system_v" says: they outlive us, so a test removes them if we come to no end. */
static void make_system_v(void)
{
	semaphores = semget(IPC_PRIVATE, 2, 0600);
	empty_queue = msgget(IPC_PRIVATE, 0600);
	full_queue = msgget(IPC_PRIVATE, 0600);
	FILE *ids = fopen("system_v", "w");
	CHECK(ids != NULL && semaphores >= 0 && empty_queue >= 0 && full_queue >= 0);
	CHECK(fprintf(ids, "sem %d\nmsg %d\nmsg %d\n", semaphores, empty_queue, full_queue) > 0 && fclose(ids) == 0);
	struct message message = { .type = 1 };
	while (msgsnd(full_queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
		;
	CHECK(errno == EAGAIN);
}

static void remove_system_v(void)
{
	CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
	CHECK(msgctl(empty_queue, IPC_RMID, NULL) == 0 && msgctl(full_queue, IPC_RMID, NULL) == 0);
}

static void take_locks(void)
{
	struct flock lock = all_of_it(F_WRLCK);
	flocked = opened("flocked"), ranged = opened("ranged"), described = opened("described");
	CHECK(flock(flocked, LOCK_EX) == 0);
	/* For the waiting lock of the process, a lock of a description is somebody else's. */
	CHECK(fcntl(ranged, F_OFD_SETLK, &lock) == 0 && fcntl(described, F_OFD_SETLK, &lock) == 0);
	CHECK(pthread_mutex_lock(&held) == 0 && pthread_rwlock_wrlock(&written) == 0);
}

static void release_locks(void)
{
	struct flock none = all_of_it(F_UNLCK);
	CHECK(flock(flocked, LOCK_UN) == 0);
	CHECK(fcntl(ranged, F_OFD_SETLK, &none) == 0 && fcntl(described, F_OFD_SETLK, &none) == 0);
	CHECK(pthread_mutex_unlock(&held) == 0 && pthread_rwlock_unlock(&written) == 0);
}

static void fill(void)
{
	uint64_t nearly_full = UINT64_MAX - 1;
	CHECK(write(full_event, &nearly_full, sizeof nearly_full) == sizeof nearly_full);
	int bytes = fcntl(full_pipe[1], F_GETPIPE_SZ);
	for (int page = 0; page < bytes / 4096; page++) {
		static const char zeros[4096];
		CHECK(write(full_pipe[1], zeros, sizeof zeros) == sizeof zeros);
	}
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = nothing };
	step_ms = 20;
	CHECK(malloc(100000)); /* something for checkpoints of data */
	CHECK(pipe(quiet_pipe) == 0 && pipe(wake_pipe) == 0);
	CHECK((wake_event = eventfd(0, 0)) >= 0 && (epoll = epoll_create1(0)) >= 0);
	CHECK(pipe(full_pipe) == 0 && (full_event = eventfd(0, 0)) >= 0);
	CHECK((timer = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0 && (quiet_timer = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0);
	struct itimerspec long_after = { .it_value = { 100000, 0 } };
	CHECK(timerfd_settime(quiet_timer, 0, &long_after, NULL) == 0);
	own = strcmp(kind, "own") == 0;
	if (!own)
		make_system_v();
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
	fill();
	take_locks();
	for (int i = 0; i < CALLS; i++)
		if (is_made(&calls[i]))
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

/* Ends the calls that have no time-out. */
static void end_calls(void)
{
	uint64_t one = 1;
	char page[4096];
	struct message message = { .type = 1, .text = "end" };
	struct itimerspec now = { .it_value = { 0, 1 } };
	futex_at_end = 1;
	syscall(SYS_futex, &futex_at_end, FUTEX_WAKE_PRIVATE, 2);
	CHECK(sem_post(&posted_at_end) == 0 && write(wake_event, &one, sizeof one) == sizeof one);
	CHECK(read(full_event, &one, sizeof one) == sizeof one && timerfd_settime(quiet_timer, 0, &now, NULL) == 0);
	CHECK(read(full_pipe[0], page, sizeof page) == sizeof page);
	CHECK(write(wake_pipe[1], "x", 1) == 1);
	close(wake_pipe[1]);
	pthread_mutex_lock(&condition_lock);
	pthread_cond_signal(&at_end);
	pthread_mutex_unlock(&condition_lock);
	release_locks();
	if (own)
		return;
	CHECK(semctl(semaphores, 1, SETVAL, 1) == 0 && msgsnd(empty_queue, &message, 3, 0) == 0);
	CHECK(msgrcv(full_queue, &message, sizeof message.text, 0, 0) == sizeof message.text);
}

static void verify(void)
{
	if (only != NULL) {
		remove_system_v();
		return;
	}
	ending = 1;
	end_calls();
	for (int i = 0; i < CALLS; i++) {
		struct call *call = &calls[i];
		if (!is_made(call))
			continue;
		if (call->ended_by != 0)
			pthread_kill(call->thread, SIGRTMIN + call->ended_by);
		pthread_join(call->thread, NULL);
		CHECK(call->rounds > 0);
		say("%s %s interruptions %d", call->name, call->wrong ? call->wrong : "ok", call->interruptions);
		if (call->wrong)
			FAIL("%s", call->name);
	}
	if (!own)
		remove_system_v();
}
