/* Threads that each wait once in a call with a relative time-out, which is STEPS * 25 ms, and say at the end how long they have
 * waited. Every call is made by an instruction of this program, which must find its arguments in the registers afterwards. */
#include "victim.h"
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>

struct call {
	const char *name;
	long number;
	/* What the call returns when its time is up. */
	long expected;
	uint64_t arguments[6];
	pthread_t thread;
	int64_t waited_ms;
};

static struct timespec whole;
static struct sembuf take = { 0, -1, 0 };
static uint32_t futex_word;
static uint64_t blocked_signals = 1ull << (40 - 1);
static struct pollfd polled[2];
static struct epoll_event events[2];
/* These two are written to by the kernel: they hold what is left. */
static struct timespec left[2];
static int pipes[2], epoll, semaphores;

enum { NANOSLEEP, CLOCK_NANOSLEEP, POLL, EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2, FUTEX, SIGTIMEDWAIT, SEMTIMEDOP, PPOLL, PSELECT, CALLS };

static struct call calls[CALLS] = {
	[NANOSLEEP] = { .name = "nanosleep", .number = SYS_nanosleep },
	[CLOCK_NANOSLEEP] = { .name = "clock_nanosleep", .number = SYS_clock_nanosleep },
	[POLL] = { .name = "poll", .number = SYS_poll },
	[EPOLL_WAIT] = { .name = "epoll_wait", .number = SYS_epoll_wait },
	[EPOLL_PWAIT] = { .name = "epoll_pwait", .number = SYS_epoll_pwait },
	[EPOLL_PWAIT2] = { .name = "epoll_pwait2", .number = SYS_epoll_pwait2 },
	[FUTEX] = { .name = "futex", .number = SYS_futex, .expected = -ETIMEDOUT },
	[SIGTIMEDWAIT] = { .name = "sigtimedwait", .number = SYS_rt_sigtimedwait, .expected = -EAGAIN },
	[SEMTIMEDOP] = { .name = "semtimedop", .number = SYS_semtimedop, .expected = -EAGAIN },
	[PPOLL] = { .name = "ppoll", .number = SYS_ppoll },
	[PSELECT] = { .name = "pselect", .number = SYS_pselect6 },
};

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void set_arguments(int which, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	uint64_t all[] = { a, b, c, d, e, 0 };
	memcpy(calls[which].arguments, all, sizeof all);
}

static void *caller(void *argument)
{
	struct call *call = argument;
	const uint64_t *a = call->arguments;
	int64_t begun = now_ms();
	long answer = call->number;
	uint64_t first = a[0], second = a[1], third = a[2];
	register uint64_t fourth __asm__("r10") = a[3];
	register uint64_t fifth __asm__("r8") = a[4];
	register uint64_t sixth __asm__("r9") = a[5];
	__asm__ volatile("syscall"
			 : "+a"(answer), "+D"(first), "+S"(second), "+d"(third), "+r"(fourth), "+r"(fifth), "+r"(sixth)
			 :
			 : "rcx", "r11", "memory");
	int same = first == a[0] && second == a[1] && third == a[2] && fourth == a[3] && fifth == a[4] && sixth == a[5];
	call->waited_ms = now_ms() - begun;
	if (!same || answer != call->expected)
		FAIL("%s gave %ld, its arguments are %s", call->name, answer, same ? "the same" : "others");
	return NULL;
}

static void set_up(void)
{
	int64_t ms = steps * 25;
	step_ms = 20;
	whole = (struct timespec){ ms / 1000, ms % 1000 * 1000000 };
	left[0] = left[1] = whole;
	CHECK(malloc(100000)); /* something for checkpoints of data */
	CHECK(pipe(pipes) == 0 && (epoll = epoll_create1(0)) >= 0);
	struct epoll_event event = { EPOLLIN, { .fd = pipes[0] } };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event) == 0);
	CHECK((semaphores = semget(IPC_PRIVATE, 1, 0600)) >= 0);
	/* It outlives us, so a test removes it if we come to no end. */
	FILE *ids = fopen("system_v", "w");
	CHECK(ids != NULL && fprintf(ids, "sem %d\n", semaphores) > 0 && fclose(ids) == 0);
	polled[0] = polled[1] = (struct pollfd){ pipes[0], POLLIN, 0 };

	uint64_t time = (uint64_t)&whole;
	set_arguments(NANOSLEEP, time, 0, 3, 4, 5);
	set_arguments(CLOCK_NANOSLEEP, CLOCK_MONOTONIC, 0, time, 0, 5);
	set_arguments(POLL, (uint64_t)&polled[0], 1, (uint64_t)ms, 4, 5);
	set_arguments(EPOLL_WAIT, (uint64_t)epoll, (uint64_t)&events[0], 1, (uint64_t)ms, 5);
	set_arguments(EPOLL_PWAIT, (uint64_t)epoll, (uint64_t)&events[0], 1, (uint64_t)ms, 0);
	set_arguments(EPOLL_PWAIT2, (uint64_t)epoll, (uint64_t)&events[1], 1, time, 0);
	set_arguments(FUTEX, (uint64_t)&futex_word, FUTEX_WAIT_PRIVATE, 0, time, 0);
	set_arguments(SIGTIMEDWAIT, (uint64_t)&blocked_signals, 0, time, 8, 0);
	set_arguments(SEMTIMEDOP, (uint64_t)semaphores, (uint64_t)&take, 1, time, 5);
	set_arguments(PPOLL, (uint64_t)&polled[1], 1, (uint64_t)&left[0], 0, 0);
	set_arguments(PSELECT, 0, 0, 0, 0, (uint64_t)&left[1]);
	for (int i = 0; i < CALLS; i++)
		CHECK(pthread_create(&calls[i].thread, NULL, caller, &calls[i]) == 0);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	for (int i = 0; i < CALLS; i++) {
		CHECK(pthread_join(calls[i].thread, NULL) == 0);
		say("%s waited %d ms", calls[i].name, (int)calls[i].waited_ms);
	}
	CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
}
