/* A thread that waits in a call on something that a checkpoint does not support. */
#include "one_call.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void skip(const char *why)
{
	say("skipped: %s", why);
	_exit(EXIT_SKIPPED);
}

static aio_context_t context;

static void make_context(void)
{
	if (syscall(SYS_io_setup, 4, &context) != 0)
		skip("no asynchronous I/O");
	place = (void *)context;
}

static int wait_for_event(void)
{
	struct io_event event;
	struct timespec time = { 100000, 0 };
	return syscall(SYS_io_getevents, context, 1, 1, &event, &time) == 1 && event.res == 1;
}

static void submit_read(void)
{
	static char byte;
	int zeros = open("/proc/self/exe", O_RDONLY);
	struct iocb read = {
		.aio_fildes = (uint32_t)zeros, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = (uintptr_t)&byte, .aio_nbytes = 1
	};
	struct iocb *all = &read;
	CHECK(zeros >= 0 && syscall(SYS_io_submit, context, 1, &all) == 1);
}

static struct io_uring_params ring;

static void make_ring(void)
{
	number = (int)syscall(SYS_io_uring_setup, 4, &ring);
	if (number < 0)
		skip("io_uring is switched off");
}

static int wait_for_completion(void)
{
	return syscall(SYS_io_uring_enter, number, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 0;
}

static void submit_nothing(void)
{
	size_t bytes = ring.sq_off.array + ring.sq_entries * sizeof(uint32_t);
	int rights = PROT_READ | PROT_WRITE;
	char *queue = mmap(NULL, bytes, rights, MAP_SHARED, number, IORING_OFF_SQ_RING);
	struct io_uring_sqe *entries =
		mmap(NULL, ring.sq_entries * sizeof *entries, rights, MAP_SHARED, number, IORING_OFF_SQES);
	CHECK(queue != MAP_FAILED && entries != MAP_FAILED);
	entries[0] = (struct io_uring_sqe){ .opcode = IORING_OP_NOP };
	*(uint32_t *)(void *)(queue + ring.sq_off.array) = 0;
	__atomic_store_n((uint32_t *)(void *)(queue + ring.sq_off.tail), 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, number, 1, 0, 0, NULL, 0) == 1);
}

static int events, wakes;
static pid_t child;

static int pause_for_ever(void *unused)
{
	(void)unused;
	while (pause() != 0)
		;
	return 0;
}

/* A child with our memory, beside which a thread waits. */
static void make_sharing_child(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	struct epoll_event event = { .events = EPOLLIN };
	events = epoll_create1(0);
	wakes = eventfd(0, 0);
	CHECK(events >= 0 && wakes >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, wakes, &event) == 0);
	child = clone(pause_for_ever, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	CHECK(child >= 0);
	number = child;
}

static int wait_beside_child(void)
{
	struct epoll_event event;
	return epoll_wait(events, &event, 1, -1) == 1;
}

static void wake_and_end_child(void)
{
	uint64_t one = 1;
	CHECK(write(wakes, &one, sizeof one) == sizeof one);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

const struct call calls[] = {
	{ "io_getevents", make_context, wait_for_event, SYS_io_getevents, submit_read },
	{ "io_uring_enter", make_ring, wait_for_completion, SYS_io_uring_enter, submit_nothing },
	{ "sharing_child", make_sharing_child, wait_beside_child, SYS_epoll_wait, wake_and_end_child },
	{ 0 },
};
