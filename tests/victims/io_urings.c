/* Instances of io_uring whose requests are all completed: with an array of numbers and without, with completions that nobody has read
 * and a request that is not submitted, by two numbers, watched by epoll, shared with a child; a thread waits for a completion. */
#include "victim.h"
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif

enum { ENTRIES = 8, UNREAD = 3 };

struct ring {
	int number;
	struct io_uring_params p;
	char *counters, *completions;
	struct io_uring_sqe *requests;
	/* What a library keeps for itself. */
	uint32_t tail;
};

static struct ring plain, ordered, quiet;
static int again, watching, file, tell[2], told[2];
static pid_t child;
static pthread_t waiter;
static int has_waited;

static uint32_t *at(const struct ring *ring, uint32_t offset)
{
	return (void *)(ring->counters + offset);
}

static void make(struct ring *ring, uint32_t flags)
{
	ring->p = (struct io_uring_params){ .flags = flags };
	ring->number = (int)syscall(SYS_io_uring_setup, ENTRIES, &ring->p);
	if (ring->number < 0) {
		say("skipped: io_uring is switched off, or too old");
		_exit(EXIT_SKIPPED);
	}
	size_t bytes = ring->p.cq_off.cqes + ring->p.cq_entries * sizeof(struct io_uring_cqe);
	if (!(flags & IORING_SETUP_NO_SQARRAY))
		bytes = ring->p.sq_off.array + ENTRIES * sizeof(uint32_t);
	int rights = PROT_READ | PROT_WRITE;
	ring->counters = mmap(NULL, bytes, rights, MAP_SHARED | MAP_POPULATE, ring->number, IORING_OFF_SQ_RING);
	ring->completions = mmap(NULL, bytes, rights, MAP_SHARED | MAP_POPULATE, ring->number, IORING_OFF_CQ_RING);
	ring->requests = mmap(NULL, ENTRIES * sizeof *ring->requests, rights, MAP_SHARED, ring->number, IORING_OFF_SQES);
	CHECK(ring->counters != MAP_FAILED && ring->completions != MAP_FAILED && ring->requests != MAP_FAILED);
	for (uint32_t n = 0; n < ENTRIES && !(flags & IORING_SETUP_NO_SQARRAY); n++)
		at(ring, ring->p.sq_off.array)[n] = n;
}

static struct io_uring_sqe *prepare(struct ring *ring, int operation, uint64_t name)
{
	CHECK(ring->tail - *at(ring, ring->p.sq_off.head) < ENTRIES);
	struct io_uring_sqe *request = &ring->requests[ring->tail++ % ENTRIES];
	*request = (struct io_uring_sqe){ .opcode = (uint8_t)operation, .fd = -1, .user_data = name };
	return request;
}

static void submit(struct ring *ring)
{
	__atomic_store_n(at(ring, ring->p.sq_off.tail), ring->tail, __ATOMIC_RELEASE);
	int count = (int)(ring->tail - *at(ring, ring->p.sq_off.head));
	CHECK(syscall(SYS_io_uring_enter, ring->number, count, 0, 0, NULL, 0) == count);
	CHECK(*at(ring, ring->p.sq_off.head) == ring->tail);
}

/* The result of the oldest completion, which is that of `name`; waits for it. */
static int complete(struct ring *ring, uint64_t name)
{
	uint32_t head = *at(ring, ring->p.cq_off.head);
	while (__atomic_load_n(at(ring, ring->p.cq_off.tail), __ATOMIC_ACQUIRE) == head)
		CHECK(syscall(SYS_io_uring_enter, ring->number, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0 || errno == EINTR);
	struct io_uring_cqe *all = (void *)(ring->completions + ring->p.cq_off.cqes);
	struct io_uring_cqe found = all[head & (ring->p.cq_entries - 1)];
	CHECK(found.user_data == name);
	__atomic_store_n(at(ring, ring->p.cq_off.head), head + 1, __ATOMIC_RELEASE);
	return found.res;
}

static void *wait_in_quiet(void *argument)
{
	CHECK(complete(&quiet, 77) == 0);
	has_waited = 1;
	return argument;
}

/* Works in the ring that it shares with its parent, when it is told to. */
static void be_child(void)
{
	char word;
	CHECK(close(tell[1]) == 0 && close(told[0]) == 0);
	while (read(tell[0], &word, 1) == 1) {
		uint32_t *tail = at(&ordered, ordered.p.sq_off.tail);
		ordered.tail = *tail;
		prepare(&ordered, IORING_OP_NOP, 1234);
		submit(&ordered);
		CHECK(complete(&ordered, 1234) == 0 && write(told[1], "x", 1) == 1);
	}
	_exit(5);
}

static void set_up(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	make(&plain, 0);
	make(&ordered, IORING_SETUP_NO_SQARRAY);
	make(&quiet, 0);
	again = dup(plain.number);
	file = open("through_a_ring", O_RDWR | O_CREAT | O_TRUNC, 0600);
	watching = epoll_create1(0);
	CHECK(again >= 0 && file >= 0 && watching >= 0);
	CHECK(epoll_ctl(watching, EPOLL_CTL_ADD, plain.number, &event) == 0);
	for (uint64_t n = 0; n < UNREAD; n++)
		prepare(&plain, IORING_OP_NOP, 1000 + n);
	submit(&plain);
	prepare(&plain, IORING_OP_NOP, 2000);
	__atomic_store_n(at(&plain, plain.p.sq_off.tail), plain.tail, __ATOMIC_RELEASE);
	CHECK(pipe(tell) == 0 && pipe(told) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
	CHECK(close(tell[0]) == 0 && close(told[1]) == 0);
	CHECK(pthread_create(&waiter, NULL, wait_in_quiet, NULL) == 0);
}

static void hold(int step)
{
	char word;
	struct epoll_event event;
	uint32_t number = (uint32_t)step, found = 0;
	CHECK(epoll_wait(watching, &event, 1, 0) == 1);
	ordered.tail = *at(&ordered, ordered.p.sq_off.tail);
	struct io_uring_sqe *write_it = prepare(&ordered, IORING_OP_WRITE, 1);
	write_it->fd = file;
	write_it->addr = (uintptr_t)&number;
	write_it->len = sizeof number;
	submit(&ordered);
	CHECK(complete(&ordered, 1) == sizeof number);
	struct io_uring_sqe *read_it = prepare(&ordered, IORING_OP_READ, 2);
	read_it->fd = file;
	read_it->addr = (uintptr_t)&found;
	read_it->len = sizeof found;
	submit(&ordered);
	CHECK(complete(&ordered, 2) == sizeof found && found == number);
	/* Over and over, so that it is used in full. */
	CHECK(write(tell[1], "x", 1) == 1 && read(told[0], &word, 1) == 1);
	say("step %d: %u done", step, *at(&ordered, ordered.p.cq_off.tail));
}

static void verify(void)
{
	int status;
	for (uint64_t n = 0; n < UNREAD; n++)
		CHECK(complete(&plain, 1000 + n) == 0);
	plain.number = again;
	submit(&plain);
	CHECK(complete(&plain, 2000) == 0);
	CHECK(!__atomic_load_n(&has_waited, __ATOMIC_SEQ_CST));
	prepare(&quiet, IORING_OP_NOP, 77);
	submit(&quiet);
	CHECK(pthread_join(waiter, NULL) == 0 && has_waited);
	CHECK(close(tell[1]) == 0 && waitpid(child, &status, 0) == child && status == 5 << 8);
}
