/* A program that holds one thing that a checkpoint does not support. KIND names it; the line "holds NAME NUMBER"
 * says what a refusal must mention. */
#include "victim.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <linux/userfaultfd.h>
#include <linux/io_uring.h>

static pid_t child;
static int number = -1, segment = -1;
static timer_t timer;

static int is(const char *name)
{
	return strcmp(kind, name) == 0;
}

static void skip(const char *why)
{
	say("skipped: %s", why);
	_exit(EXIT_SKIPPED);
}

static void make_child(void)
{
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (;;)
			pause();
	}
	number = child;
}

static void make_zombie(void)
{
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(3);
	siginfo_t ended;
	CHECK(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
	number = child;
}

static void make_posix_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	struct itimerspec time = { { 0, 0 }, { 1000, 0 } };
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &time, NULL) == 0);
	number = (int)(intptr_t)timer;
}

static void make_shm(void)
{
	segment = shmget(IPC_PRIVATE, 8192, IPC_CREAT | 0600);
	if (segment < 0)
		skip("no System V shared memory");
	char *at = shmat(segment, NULL, 0);
	CHECK(at != (void *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
	strcpy(at, "kept");
	number = segment;
}

static void make_lock(void)
{
	number = open("locked", O_RDWR | O_CREAT, 0600);
	CHECK(number >= 0 && flock(number, LOCK_EX) == 0);
}

static void make_deleted_file(void)
{
	number = open("deleted", O_RDWR | O_CREAT, 0600);
	CHECK(number >= 0 && write(number, "x", 1) == 1 && unlink("deleted") == 0);
}

static void make_io_uring(void)
{
	struct io_uring_params parameters = { 0 };
	number = (int)syscall(SYS_io_uring_setup, 4, &parameters);
	if (number < 0)
		skip("io_uring is switched off");
}

static void set_up(void)
{
	step_ms = 20;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 4);
	if (is("socket"))
		number = socket(AF_INET, SOCK_STREAM, 0);
	else if (is("socketpair")) {
		int pair[2];
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
		number = pair[0];
	} else if (is("child"))
		make_child();
	else if (is("zombie"))
		make_zombie();
	else if (is("timerfd"))
		number = timerfd_create(CLOCK_MONOTONIC, 0);
	else if (is("inotify"))
		number = inotify_init1(0);
	else if (is("signalfd"))
		number = signalfd(-1, &set, 0);
	else if (is("pidfd"))
		number = (int)syscall(SYS_pidfd_open, getpid(), 0);
	else if (is("userfaultfd")) {
		number = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
		if (number < 0)
			skip("no userfaultfd");
	} else if (is("memfd"))
		number = memfd_create("held", 0);
	else if (is("posix_timer"))
		make_posix_timer();
	else if (is("shm"))
		make_shm();
	else if (is("flock"))
		make_lock();
	else if (is("deleted"))
		make_deleted_file();
	else if (is("io_uring"))
		make_io_uring();
	else if (is("fifo")) {
		CHECK(mkfifo("fifo", 0600) == 0 || errno == EEXIST);
		number = open("fifo", O_RDWR);
	} else if (is("terminal")) {
		int master = posix_openpt(O_RDWR | O_NOCTTY);
		CHECK(master >= 0);
		number = master;
	} else if (is("mqueue"))
		number = (int)syscall(SYS_mq_open, "ckpt-test", O_RDWR | O_CREAT, 0600, NULL);
	else
		FAIL("unknown kind %s", kind);
	if (number < 0 && is("mqueue"))
		skip("no message queues");
	CHECK(number >= 0);
	say("holds %s %d", kind, number);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	int status = 0;
	if (is("child"))
		CHECK(kill(child, SIGKILL) == 0);
	if (child > 0)
		CHECK(waitpid(child, &status, 0) == child);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	if (is("mqueue"))
		syscall(SYS_mq_unlink, "ckpt-test");
}
