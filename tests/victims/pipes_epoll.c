/* Pipes to oneself with unread data, eventfds, and epoll with its data and flags, nested. And epoll that watches what has left its number: one
 * number is free now, one leads to another counter, one was added twice, and one description only a child has. */
#include "victim.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

enum { UNREAD = 10000, BIG = 1 << 20, LEVEL = 1001, EDGE, ONESHOT, NESTED };
static int filled[2], big[2], empty[2], half[2], packets[2];
static int counter, semaphore, outer, inner, disarmed;
enum { LEFT = 2001, REPLACED, TWICE, ABROAD, MOVED = 4 };
static int moving, at[MOVED], now[MOVED], child_ends[2];
static unsigned char buffer[BIG];

static void watch(int epoll, int file, uint32_t events, uint64_t value)
{
	struct epoll_event event = { events, { .u64 = value } };
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event) == 0);
}

/* Each is ready only when somebody writes to the description, wherever that is by now. */
static void set_up_moved(void)
{
	CHECK((moving = epoll_create1(0)) >= 0 && pipe(child_ends) == 0);
	for (int number = 0; number < MOVED; number++) {
		CHECK((at[number] = eventfd(0, 0)) >= 0);
		watch(moving, at[number], EPOLLIN, (uint64_t)LEFT + (uint64_t)number);
	}
	for (int number = 0; number < 3; number++)
		CHECK((now[number] = fcntl(at[number], F_DUPFD, 100)) >= 100);
	CHECK(dup2(counter, at[1]) == at[1]);
	/* The number has another counter, which is watched, too. */
	int other = eventfd(0, 0);
	CHECK(dup2(other, at[2]) == at[2] && close(other) == 0);
	watch(moving, at[2], EPOLLIN, 3000);
	if (fork() == 0) {
		char byte;
		alarm(60);
		close(child_ends[1]);
		if (read(child_ends[0], &byte, 1) == 1)
			eventfd_write(at[3], 1);
		/* Until the other process has ended: what is closed everywhere is watched no more. */
		_exit((int)read(child_ends[0], &byte, 1));
	}
	CHECK(close(at[0]) == 0 && close(at[3]) == 0 && close(child_ends[0]) == 0);
}

static void verify_moved(void)
{
	struct epoll_event events[MOVED + 1];
	CHECK(fcntl(at[0], F_GETFD) == -1 && fcntl(at[3], F_GETFD) == -1);
	CHECK(epoll_wait(moving, events, MOVED + 1, 0) == 0);
	for (int number = 0; number < 3; number++) {
		CHECK(eventfd_write(now[number], 1) == 0);
		CHECK(epoll_wait(moving, events, MOVED + 1, 0) == 1 && events[0].data.u64 == (uint64_t)LEFT + (uint64_t)number);
		eventfd_t value;
		CHECK(eventfd_read(now[number], &value) == 0 && value == 1);
	}
	CHECK(eventfd_write(at[2], 1) == 0 && epoll_wait(moving, events, MOVED + 1, 0) == 1 && events[0].data.u64 == 3000);
	eventfd_t value;
	CHECK(eventfd_read(at[2], &value) == 0);
	CHECK(write(child_ends[1], "x", 1) == 1);
	CHECK(epoll_wait(moving, events, MOVED + 1, 20000) == 1 && events[0].data.u64 == ABROAD);
}

static void fill(int file, size_t bytes, int seed)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)mix((uint64_t)seed + i);
	CHECK(write(file, buffer, bytes) == (ssize_t)bytes);
}

static void drain(int file, size_t bytes, int seed)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t count = read(file, buffer + done, bytes - done);
		CHECK(count > 0);
		done += (size_t)count;
	}
	for (size_t i = 0; i < bytes; i++)
		CHECK(buffer[i] == (unsigned char)mix((uint64_t)seed + i));
}

static void set_up(void)
{
	CHECK(pipe(filled) == 0 && pipe2(big, O_CLOEXEC) == 0 && pipe2(empty, O_NONBLOCK) == 0 && pipe(half) == 0);
	CHECK(pipe2(packets, O_NONBLOCK) == 0);
	fill(filled[1], UNREAD, 1);
	CHECK(fcntl(big[1], F_SETPIPE_SZ, BIG) == BIG);
	fill(big[1], BIG - 4096, 2);
	/* A pipe whose writer is gone: the rest can be read, then comes the end. */
	fill(half[1], 100, 3);
	close(half[1]);
	CHECK((counter = eventfd(12345, EFD_NONBLOCK)) >= 0);
	CHECK((semaphore = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC)) >= 0);
	CHECK((outer = epoll_create1(EPOLL_CLOEXEC)) >= 0 && (inner = epoll_create1(0)) >= 0);
	CHECK((disarmed = eventfd(1, 0)) >= 0);
	watch(outer, filled[0], EPOLLIN, LEVEL);
	watch(outer, empty[0], EPOLLIN | EPOLLET, EDGE);
	watch(outer, disarmed, EPOLLIN | EPOLLONESHOT, ONESHOT);
	watch(inner, empty[0], EPOLLIN, 77);
	watch(outer, inner, EPOLLIN, NESTED);
	set_up_moved();
	/* Use the one shot up: it must stay used up. */
	struct epoll_event events[4];
	CHECK(epoll_wait(outer, events, 4, 0) == 2);
	CHECK(epoll_wait(outer, events, 4, 0) == 1);
}

static void hold(int step)
{
	struct epoll_event events[8];
	int unread = 0;
	CHECK(ioctl(filled[0], FIONREAD, &unread) == 0 && unread == UNREAD);
	CHECK(ioctl(big[0], FIONREAD, &unread) == 0 && unread == BIG - 4096);
	CHECK(fcntl(big[0], F_GETPIPE_SZ) == BIG && fcntl(big[0], F_GETFD) == FD_CLOEXEC);
	CHECK((fcntl(empty[0], F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDONLY | O_NONBLOCK));
	CHECK((fcntl(filled[1], F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == O_WRONLY);
	CHECK(fcntl(outer, F_GETFD) == FD_CLOEXEC && fcntl(inner, F_GETFD) == 0);
	CHECK(epoll_wait(outer, events, 8, 0) == 1 && events[0].data.u64 == LEVEL && events[0].events == EPOLLIN);
	say("step %d", step);
}

static void verify_epoll(void)
{
	verify_moved();
	struct epoll_event events[8];
	int seen_edge = 0, seen_nested = 0;
	CHECK(write(empty[1], "x", 1) == 1);
	int count = epoll_wait(outer, events, 8, 1000);
	for (int i = 0; i < count; i++) {
		seen_edge |= events[i].data.u64 == EDGE;
		seen_nested |= events[i].data.u64 == NESTED;
		CHECK(events[i].data.u64 != ONESHOT);
	}
	CHECK(count == 3 && seen_edge && seen_nested);
	count = epoll_wait(outer, events, 8, 0);
	for (int i = 0; i < count; i++)
		CHECK(events[i].data.u64 == LEVEL || events[i].data.u64 == NESTED);
	CHECK(epoll_wait(inner, events, 8, 0) == 1 && events[0].data.u64 == 77);
	struct epoll_event again = { EPOLLIN | EPOLLONESHOT, { .u64 = ONESHOT } };
	CHECK(epoll_ctl(outer, EPOLL_CTL_MOD, disarmed, &again) == 0);
	count = epoll_wait(outer, events, 8, 0);
	int seen_oneshot = 0;
	for (int i = 0; i < count; i++)
		seen_oneshot |= events[i].data.u64 == ONESHOT;
	CHECK(seen_oneshot);
}

static void verify(void)
{
	uint64_t value = 0;
	verify_epoll();
	drain(filled[0], UNREAD, 1);
	drain(big[0], BIG - 4096, 2);
	drain(half[0], 100, 3);
	CHECK(read(half[0], &value, 1) == 0);
	CHECK(read(packets[0], &value, 1) == -1 && errno == EAGAIN);
	CHECK(read(counter, &value, 8) == 8 && value == 12345);
	for (int i = 0; i < 3; i++)
		CHECK(read(semaphore, &value, 8) == 8 && value == 1);
	CHECK(read(semaphore, &value, 8) == -1 && errno == EAGAIN);
}
