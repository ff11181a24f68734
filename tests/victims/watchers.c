/* Descriptors of processes, and inotify instances with their watches: in one process, shared by two, watched by epoll. */
#include "victim.h"
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CHILD = 7, NOTE };
static int self, of_child, of_ended, of_reaped, notes, quiet, watching, tell[2];
static int directory, file, shared, numbers[4];
static pid_t child, ended;

static int pidfd(pid_t pid, int flags)
{
	int number = (int)syscall(SYS_pidfd_open, pid, flags);
	CHECK(number >= 0);
	return number;
}

static int is_over(int number)
{
	struct pollfd polled = { .fd = number, .events = POLLIN };
	CHECK(poll(&polled, 1, 0) >= 0);
	return polled.revents & POLLIN;
}

/* The child shares the instance, and reads the event that it is told of. */
static void be_child(void)
{
	char word;
	CHECK(close(tell[1]) == 0);
	while (read(tell[0], &word, 1) == 1)
		CHECK(syscall(SYS_pidfd_send_signal, self, 0, NULL, 0) == 0);
	_exit(5);
}

static int watch(int instance, const char *path, uint32_t mask)
{
	int number = inotify_add_watch(instance, path, mask);
	CHECK(number > 0);
	return number;
}

static void write_to(const char *path)
{
	int written = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	CHECK(written >= 0 && write(written, "x", 1) == 1 && close(written) == 0);
}

/* What the next event says; its file name is in the buffer. */
static struct inotify_event *next(int instance)
{
	static char events[4096] __attribute__((aligned(8)));
	struct inotify_event *event = (void *)events;
	ssize_t bytes = read(instance, events, sizeof events);
	CHECK(bytes == (ssize_t)(sizeof *event + event->len));
	return event;
}

static void add(int file_, uint64_t value)
{
	struct epoll_event event = { EPOLLIN, { .u64 = value } };
	CHECK(epoll_ctl(watching, EPOLL_CTL_ADD, file_, &event) == 0);
}

static void set_up(void)
{
	siginfo_t info;
	CHECK(mkdir("watched", 0700) == 0);
	write_to("watched/file");
	notes = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	quiet = inotify_init1(0);
	CHECK(notes >= 0 && quiet >= 0);
	/* Some numbers are given up, so that there are gaps. */
	for (int n = 0; n < 20; n++)
		CHECK(inotify_rm_watch(notes, watch(notes, "watched/file", IN_MODIFY)) == 0);
	for (int n = 0; n < 4; n++) {
		char name[32];
		snprintf(name, sizeof name, "watched/%d", n);
		write_to(name);
		numbers[n] = watch(notes, name, IN_MODIFY);
	}
	CHECK(inotify_rm_watch(notes, numbers[0]) == 0 && inotify_rm_watch(notes, numbers[2]) == 0);
	directory = watch(notes, "watched", IN_CREATE | IN_DELETE | IN_EXCL_UNLINK | IN_ONLYDIR);
	file = watch(notes, "watched/file", IN_MODIFY);
	shared = watch(quiet, ".", IN_DELETE | IN_ONESHOT);
	CHECK(pipe(tell) == 0);
	self = pidfd(getpid(), 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
	CHECK(close(tell[0]) == 0);
	of_child = pidfd(child, O_NONBLOCK);
	ended = fork();
	if (ended == 0)
		_exit(9);
	of_ended = pidfd(ended, 0);
	CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0);
	pid_t reaped = fork();
	if (reaped == 0)
		_exit(1);
	of_reaped = pidfd(reaped, 0);
	CHECK(waitpid(reaped, NULL, 0) == reaped);
	watching = epoll_create1(0);
	CHECK(watching >= 0);
	add(of_child, CHILD);
	add(notes, NOTE);
	char rest[4096];
	while (read(notes, rest, sizeof rest) > 0)
		;
}

static void hold(int step)
{
	struct epoll_event event;
	CHECK(write(tell[1], "x", 1) == 1);
	CHECK(!is_over(self) && !is_over(of_child) && is_over(of_ended) && is_over(of_reaped));
	CHECK(syscall(SYS_pidfd_send_signal, of_child, 0, NULL, 0) == 0);
	CHECK(syscall(SYS_pidfd_send_signal, of_reaped, 0, NULL, 0) == -1 && errno == ESRCH);
	CHECK((fcntl(of_child, F_GETFL) & O_NONBLOCK) && !(fcntl(of_ended, F_GETFL) & O_NONBLOCK));
	CHECK(fcntl(notes, F_GETFD) == FD_CLOEXEC && (fcntl(notes, F_GETFL) & O_NONBLOCK) && fcntl(quiet, F_GETFD) == 0);
	CHECK(epoll_wait(watching, &event, 1, 0) == 0);
	/* Now and then: a checkpoint is not taken while an event is there that nobody has read. */
	if (step % 8 == 0) {
		write_to("watched/file");
		CHECK(epoll_wait(watching, &event, 1, 1000) == 1 && event.data.u64 == NOTE);
		CHECK(next(notes)->wd == file);
	}
	say("step %d", step);
}

static void verify(void)
{
	siginfo_t info;
	struct epoll_event event;
	write_to("watched/1");
	CHECK(next(notes)->wd == numbers[1]);
	write_to("watched/0");
	write_to("watched/2");

	write_to("watched/new");
	struct inotify_event *created = next(notes);
	CHECK(created->wd == directory && created->mask == IN_CREATE && strcmp(created->name, "new") == 0);
	CHECK(unlink("watched/new") == 0 && next(notes)->mask == IN_DELETE);
	write_to("watched/3");
	CHECK(next(notes)->wd == numbers[3]);
	/* Numbers go on behind the highest. */
	CHECK(watch(notes, "watched/0", IN_MODIFY) == file + 1);
	write_to("gone");
	CHECK(unlink("gone") == 0);
	/* The end of the only shot comes with it. */
	struct inotify_event pair[4];
	CHECK(read(quiet, pair, sizeof pair) == 2 * sizeof pair[0] + 16 && pair[0].mask == IN_DELETE);
	CHECK(watch(quiet, ".", IN_DELETE) == shared + 1);
	CHECK(waitid(P_PIDFD, (id_t)of_ended, &info, WEXITED) == 0 && info.si_pid == ended && info.si_status == 9);
	CHECK(close(tell[1]) == 0);
	CHECK(epoll_wait(watching, &event, 1, 5000) == 1 && event.data.u64 == CHILD);
	CHECK(waitid(P_PIDFD, (id_t)of_child, &info, WEXITED) == 0 && info.si_pid == child && info.si_status == 5);
}
