/* Named pipes, in one process and between two, and packets in pipes of either kind. */
#include "victim.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MODE = 0640, CAPACITY = 16384 };
static int to_child, from_child, both, ended, unwritten, orphan, removed, named_packets, place;
static int packets[2];
static pid_t child;

static int open_fifo(const char *name, int flags)
{
	CHECK(mkfifo(name, 0600) == 0 || errno == EEXIST);
	CHECK(chmod(name, MODE) == 0);
	int file = open(name, flags);
	CHECK(file >= 0);
	return file;
}

static void put(int file, const char *text)
{
	CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
}

static void expect(int file, const char *text)
{
	char bytes[256] = "";
	ssize_t count = read(file, bytes, sizeof bytes);
	CHECK(count == (ssize_t)strlen(text) && strcmp(bytes, text) == 0);
}

static int unread(int file)
{
	int bytes = -1;
	CHECK(ioctl(file, FIONREAD, &bytes) == 0);
	return bytes;
}

static short events(int file)
{
	struct pollfd polled = { .fd = file, .events = POLLIN };
	CHECK(poll(&polled, 1, 0) >= 0);
	return polled.revents;
}

/* Gives back each number, plus one. Its ends it has opened by name itself. */
static void be_child(void)
{
	int value, in = open("to_child", O_RDONLY), out = open("from_child", O_WRONLY);
	while (in >= 0 && out >= 0 && read(in, &value, sizeof value) == sizeof value) {
		value++;
		if (write(out, &value, sizeof value) != sizeof value)
			break;
	}
	_exit(3);
}

static void set_up(void)
{
	signal(SIGPIPE, SIG_IGN);
	CHECK(mkfifo("to_child", 0600) == 0 && mkfifo("from_child", 0600) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
	to_child = open_fifo("to_child", O_WRONLY);
	from_child = open_fifo("from_child", O_RDONLY);
	both = open_fifo("both", O_RDWR | O_CLOEXEC);
	CHECK(fcntl(both, F_SETPIPE_SZ, CAPACITY) == CAPACITY);
	put(both, "to oneself");
	ended = open_fifo("ended", O_RDONLY | O_NONBLOCK);
	int writer = open("ended", O_WRONLY);
	put(writer, "the rest");
	CHECK(close(writer) == 0 && fcntl(ended, F_SETFL, 0) == 0);
	unwritten = open_fifo("unwritten", O_RDONLY | O_NONBLOCK);
	int reader = open_fifo("orphan", O_RDONLY | O_NONBLOCK);
	orphan = open("orphan", O_WRONLY);
	CHECK(orphan >= 0 && close(reader) == 0);
	removed = open_fifo("removed", O_RDWR);
	put(removed, "nameless");
	CHECK(unlink("removed") == 0);
	place = open("both", O_PATH);
	CHECK(pipe2(packets, O_DIRECT | O_NONBLOCK) == 0 && place >= 0);
	put(packets[1], "one");
	put(packets[1], "and two");
	CHECK(fcntl(packets[1], F_SETFL, O_NONBLOCK) == 0);
	put(packets[1], "not ");
	put(packets[1], "apart");
	CHECK(fcntl(packets[1], F_SETFL, O_NONBLOCK | O_DIRECT) == 0);
	put(packets[1], "3");
	named_packets = open_fifo("packets", O_RDWR);
	CHECK(fcntl(named_packets, F_SETFL, O_NONBLOCK | O_DIRECT) == 0);
	put(named_packets, "named");
	put(named_packets, "twice");
}

static void hold(int step)
{
	struct stat named, opened;
	int value = step;
	CHECK(write(to_child, &value, sizeof value) == sizeof value);
	CHECK(read(from_child, &value, sizeof value) == sizeof value && value == step + 1);
	CHECK(stat("both", &named) == 0 && fstat(both, &opened) == 0 && named.st_ino == opened.st_ino);
	CHECK(S_ISFIFO(named.st_mode) && (named.st_mode & 07777) == MODE && named.st_uid == geteuid());
	CHECK(fstat(place, &opened) == 0 && named.st_ino == opened.st_ino && (fcntl(place, F_GETFL) & O_PATH));
	CHECK(unread(both) == 10 && unread(ended) == 8 && unread(removed) == 8 && unread(packets[0]) == 20);
	CHECK(fcntl(both, F_GETPIPE_SZ) == CAPACITY && fcntl(both, F_GETFD) == FD_CLOEXEC);
	CHECK((fcntl(both, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == O_RDWR);
	CHECK((fcntl(ended, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == O_RDONLY);
	CHECK((fcntl(packets[1], F_GETFL) & (O_DIRECT | O_NONBLOCK)) == (O_DIRECT | O_NONBLOCK));
	CHECK((events(ended) & POLLHUP) && events(unwritten) == 0);
	CHECK(write(orphan, "x", 1) == -1 && errno == EPIPE);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	expect(both, "to oneself");
	int again = open("both", O_WRONLY);
	put(again, "by name");
	expect(both, "by name");
	expect(ended, "the rest");
	CHECK(read(ended, &status, 1) == 0);
	expect(removed, "nameless");
	CHECK(read(unwritten, &status, 1) == 0);
	again = open("unwritten", O_WRONLY | O_NONBLOCK);
	put(again, "at last");
	expect(unwritten, "at last");
	CHECK(close(again) == 0 && (events(unwritten) & POLLHUP));
	expect(packets[0], "one");
	expect(packets[0], "and two");
	expect(packets[0], "not apart3");
	CHECK(read(packets[0], &status, 1) == -1 && errno == EAGAIN);
	put(packets[1], "four");
	put(packets[1], "five");
	expect(packets[0], "four");
	expect(packets[0], "five");
	expect(named_packets, "named");
	put(named_packets, "thrice");
	expect(named_packets, "twice");
	expect(named_packets, "thrice");
	CHECK(close(to_child) == 0 && read(from_child, &status, 1) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
}
