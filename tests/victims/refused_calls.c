/* A thread that waits in a call on something that a checkpoint does not support. KIND names it; the line "holds KIND WORD"
 * says what a refusal must mention. The call must not notice the refused checkpoint: it returns what it would have, when the
 * main thread ends it. */
#include "victim.h"
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

static int number = -1;
static void *place;
static int ends[2], results = -1;
static volatile int ending;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_bytes = sizeof(sa_family_t);
static const struct timeval long_time = { .tv_sec = 100000 };

static void skip(const char *why)
{
	say("skipped: %s", why);
	_exit(EXIT_SKIPPED);
}

static int with_time_out(int socket)
{
	CHECK(setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time) == 0);
	CHECK(setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &long_time, sizeof long_time) == 0);
	return socket;
}

/* The kernel gives it a name of its own. */
static void listen_somewhere(void)
{
	number = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(number >= 0 && bind(number, (struct sockaddr *)&address, address_bytes) == 0 && listen(number, 0) == 0);
	address_bytes = sizeof address;
	CHECK(getsockname(number, (struct sockaddr *)&address, &address_bytes) == 0);
}

static void listen_for_a_time(void)
{
	listen_somewhere();
	with_time_out(number);
}

static int accept_one(void)
{
	return accept(number, NULL, NULL) >= 0;
}

static int accept_one_closed_on_exec(void)
{
	return accept4(number, NULL, NULL, SOCK_CLOEXEC) >= 0;
}

static void be_accepted(void)
{
	int socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(socket_ >= 0 && connect(socket_, (struct sockaddr *)&address, address_bytes) == 0);
}

static void listen_to_too_many(void)
{
	int answer;
	listen_somewhere();
	do {
		int caller = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(caller >= 0);
		answer = connect(caller, (struct sockaddr *)&address, address_bytes);
	} while (answer == 0);
	CHECK(errno == EAGAIN);
}

static int connect_one(void)
{
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, address_bytes) == 0;
}

static int connect_for_a_time(void)
{
	int caller = with_time_out(socket(AF_UNIX, SOCK_STREAM, 0));
	return connect(caller, (struct sockaddr *)&address, address_bytes) == 0;
}

static void accept_another(void)
{
	CHECK(accept(number, NULL, NULL) >= 0);
}

static void make_pair(void)
{
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	number = ends[0];
}

static void make_pair_with_time_out(void)
{
	make_pair();
	with_time_out(number);
}

static void make_full_pair(void)
{
	make_pair_with_time_out();
	while (send(number, "x", 1, MSG_DONTWAIT) == 1)
		;
	CHECK(errno == EAGAIN);
}

static struct iovec byte_place(void)
{
	static char byte = 'x';
	return (struct iovec){ &byte, 1 };
}

static int recv_byte(void)
{
	char byte;
	return recv(number, &byte, 1, 0) == 1;
}

static int recvmsg_byte(void)
{
	struct iovec byte = byte_place();
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };
	return recvmsg(number, &message, 0) == 1;
}

static int recvmmsg_byte(void)
{
	struct iovec byte = byte_place();
	struct mmsghdr message = { .msg_hdr = { .msg_iov = &byte, .msg_iovlen = 1 } };
	return recvmmsg(number, &message, 1, 0, NULL) == 1;
}

static int read_byte(void)
{
	char byte;
	return read(number, &byte, 1) == 1;
}

static int readv_byte(void)
{
	struct iovec byte = byte_place();
	return readv(number, &byte, 1) == 1;
}

static void send_byte(void)
{
	CHECK(send(ends[1], "x", 1, 0) == 1);
}

static int send_one(void)
{
	return send(number, "x", 1, 0) == 1;
}

static int sendmsg_one(void)
{
	struct iovec byte = byte_place();
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };
	return sendmsg(number, &message, 0) == 1;
}

static int sendmmsg_one(void)
{
	struct iovec byte = byte_place();
	struct mmsghdr message = { .msg_hdr = { .msg_iov = &byte, .msg_iovlen = 1 } };
	return sendmmsg(number, &message, 1, 0) == 1;
}

static int write_one(void)
{
	return write(number, "x", 1) == 1;
}

static int writev_one(void)
{
	struct iovec byte = byte_place();
	return writev(number, &byte, 1) == 1;
}

/* A sender is woken when there is much room. */
static void receive_others(void)
{
	char byte;
	while (recv(ends[1], &byte, 1, MSG_DONTWAIT) == 1)
		;
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

/* A child with our descriptor table, beside which a thread waits. */
static void make_sharing_child(void)
{
	struct epoll_event event = { .events = EPOLLIN };
	events = epoll_create1(0);
	wakes = eventfd(0, 0);
	CHECK(events >= 0 && wakes >= 0 && epoll_ctl(events, EPOLL_CTL_ADD, wakes, &event) == 0);
	child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(child >= 0);
	while (child == 0)
		pause();
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

static const struct call {
	const char *kind;
	void (*prepare)(void);
	/* Makes the call; whether it returned what it should. */
	int (*wait)(void);
	long syscall_number;
	void (*end)(void);
} calls[] = {
	{ "accept", listen_somewhere, accept_one, SYS_accept, be_accepted },
	{ "accept_timed", listen_for_a_time, accept_one, SYS_accept, be_accepted },
	{ "accept4_timed", listen_for_a_time, accept_one_closed_on_exec, SYS_accept4, be_accepted },
	{ "connect", listen_to_too_many, connect_one, SYS_connect, accept_another },
	{ "connect_timed", listen_to_too_many, connect_for_a_time, SYS_connect, accept_another },
	{ "recv", make_pair, recv_byte, SYS_recvfrom, send_byte },
	{ "recv_timed", make_pair_with_time_out, recv_byte, SYS_recvfrom, send_byte },
	{ "recvmsg_timed", make_pair_with_time_out, recvmsg_byte, SYS_recvmsg, send_byte },
	{ "recvmmsg_timed", make_pair_with_time_out, recvmmsg_byte, SYS_recvmmsg, send_byte },
	{ "read_timed", make_pair_with_time_out, read_byte, SYS_read, send_byte },
	{ "readv_timed", make_pair_with_time_out, readv_byte, SYS_readv, send_byte },
	{ "send_timed", make_full_pair, send_one, SYS_sendto, receive_others },
	{ "sendmsg_timed", make_full_pair, sendmsg_one, SYS_sendmsg, receive_others },
	{ "sendmmsg_timed", make_full_pair, sendmmsg_one, SYS_sendmmsg, receive_others },
	{ "write_timed", make_full_pair, write_one, SYS_write, receive_others },
	{ "writev_timed", make_full_pair, writev_one, SYS_writev, receive_others },
	{ "io_getevents", make_context, wait_for_event, SYS_io_getevents, submit_read },
	{ "io_uring_enter", make_ring, wait_for_completion, SYS_io_uring_enter, submit_nothing },
	{ "sharing_child", make_sharing_child, wait_beside_child, SYS_epoll_wait, wake_and_end_child },
};

static const struct call *call;
static pthread_t waiter;
static volatile pid_t waiter_tid;

static void *make_call(void *nothing)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	waiter_tid = gettid();
	results = call->wait() ? ending ? 0 : -2 : errno;
	return nothing;
}

/* Whether the thread waits in its call, as the kernel shows it. */
static int is_waiting(void)
{
	char path[64];
	long found = -1;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter_tid);
	FILE *file = fopen(path, "r");
	CHECK(file != NULL);
	int count = fscanf(file, "%ld", &found);
	fclose(file);
	return count == 1 && found == call->syscall_number;
}

static void set_up(void)
{
	step_ms = 20;
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
		if (strcmp(kind, calls[i].kind) == 0)
			call = &calls[i];
	if (call == NULL)
		FAIL("unknown kind %s", kind);
	call->prepare();
	CHECK(pthread_create(&waiter, NULL, make_call, NULL) == 0);
	while (waiter_tid == 0 || !is_waiting())
		sleep_ms(1);
	if (place != NULL)
		say("holds %s %p", kind, place);
	else
		say("holds %s %d", kind, number);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	ending = 1;
	call->end();
	CHECK(pthread_join(waiter, NULL) == 0);
	say("the call %s", results == 0 ? "was right" : results == -2 ? "returned too early" : strerror(results));
	CHECK(results == 0);
}
