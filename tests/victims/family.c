/* Processes that belong together: what they share, who they are to each other, and how those ended that nobody has waited for. */
#include "victim.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { BIG = 40000, MATES = 3 };

/* Shared memory of all of them. */
struct common {
	volatile int parent_of_doubler, group_of_leader, session_of_leader, parent_of_grandchild;
	volatile int counted, doubled;
	volatile char here[MATES + 1];
};

static struct common *common;
static pid_t parent, doubler, leader, ended, killed;
static int to_doubler[2], from_doubler[2], counter, written, events;
static unsigned char *own;
static uint64_t own_sum;

static int get(int from)
{
	int value;
	ssize_t bytes = read(from, &value, sizeof value);
	if (bytes == 0)
		_exit(3);
	if (bytes != sizeof value)
		FAIL("read gave %zd bytes (errno %d)", bytes, errno);
	return value;
}

/* Doubles numbers, and writes a byte where its parent writes, too. */
static void be_doubler(void)
{
	CHECK(close(to_doubler[1]) == 0 && close(from_doubler[0]) == 0);
	common->here[0] = 1;
	for (;;) {
		int value = 2 * get(to_doubler[0]);
		common->parent_of_doubler = getppid();
		common->doubled++;
		CHECK(write(written, "d", 1) == 1);
		CHECK(sum_of(own, BIG) == own_sum);
		CHECK(write(from_doubler[1], &value, sizeof value) == sizeof value);
	}
}

/* Adds up what comes through an eventfd, with an epoll instance that its parents have made. */
static void be_grandchild(void)
{
	common->here[2] = 1;
	for (;;) {
		struct epoll_event event;
		uint64_t count;
		if (epoll_wait(events, &event, 1, -1) != 1)
			continue;
		CHECK(event.data.u64 == 0x1122334455667788u);
		CHECK(read(counter, &count, sizeof count) == sizeof count);
		common->parent_of_grandchild = getppid();
		common->counted += (int)count;
		if (count >= 1000000)
			_exit(6);
	}
}

/* Leads a session, and has a child. */
static void be_leader(void)
{
	int status;
	CHECK(setsid() == getpid());
	CHECK(close(to_doubler[0]) == 0 && close(to_doubler[1]) == 0 && close(from_doubler[0]) == 0 && close(from_doubler[1]) == 0);
	pid_t grandchild = fork();
	CHECK(grandchild >= 0);
	if (grandchild == 0)
		be_grandchild();
	common->group_of_leader = getpgrp();
	common->session_of_leader = getsid(0);
	common->here[1] = 1;
	CHECK(waitpid(grandchild, &status, 0) == grandchild && WIFEXITED(status) && WEXITSTATUS(status) == 6);
	_exit(common->group_of_leader == getpgrp() && common->session_of_leader == getsid(0) ? 4 : 1);
}

static pid_t born(void (*life)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		life();
		_exit(1);
	}
	return child;
}

static void end_at_once(void)
{
	_exit(5);
}

static void be_killed(void)
{
	raise(SIGKILL);
}

static void set_up(void)
{
	step_ms = 15;
	parent = getpid();
	common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(common != MAP_FAILED);
	/* Memory that each has for itself after the fork. */
	own = malloc(BIG);
	CHECK(own != NULL);
	memset(own, 7, BIG);
	own_sum = sum_of(own, BIG);
	CHECK(pipe(to_doubler) == 0 && pipe(from_doubler) == 0);
	counter = eventfd(0, 0);
	written = open("written", O_RDWR | O_CREAT | O_TRUNC, 0640);
	events = epoll_create1(0);
	CHECK(counter >= 0 && written >= 0 && events >= 0 && flock(written, LOCK_EX) == 0);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0x1122334455667788u };
	CHECK(epoll_ctl(events, EPOLL_CTL_ADD, counter, &event) == 0);
	doubler = born(be_doubler);
	ended = born(end_at_once);
	leader = born(be_leader);
	killed = born(be_killed);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0);
	CHECK(waitid(P_PID, (id_t)killed, &info, WEXITED | WNOWAIT) == 0);
	CHECK(close(to_doubler[0]) == 0 && close(from_doubler[1]) == 0);
	while (!common->here[0] || !common->here[1] || !common->here[2])
		sleep_ms(1);
}

static void hold(int step)
{
	uint64_t one = 1;
	siginfo_t info = { 0 };
	CHECK(write(to_doubler[1], &step, sizeof step) == sizeof step);
	CHECK(get(from_doubler[0]) == 2 * step);
	CHECK(write(counter, &one, sizeof one) == sizeof one);
	CHECK(write(written, "p", 1) == 1);
	CHECK(common->parent_of_doubler == parent && getpid() == parent);
	CHECK(getpgid(doubler) == getpgrp() && getsid(doubler) == getsid(0));
	CHECK(getpgid(leader) == leader && getsid(leader) == leader);
	CHECK(kill(doubler, 0) == 0 && kill(ended, 0) == 0);
	CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 5);
	say("step %d: %d doubled, offset %ld", step, common->doubled, (long)lseek(written, 0, SEEK_CUR));
}

static void verify(void)
{
	uint64_t much = 1000000;
	int status;
	/* Through another description it is locked still. */
	int other = open("written", O_RDONLY);
	CHECK(other >= 0 && flock(other, LOCK_SH | LOCK_NB) != 0);
	CHECK(waitpid(ended, &status, 0) == ended && WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(waitpid(-1, &status, WNOHANG) == 0);
	CHECK(write(counter, &much, sizeof much) == sizeof much);
	CHECK(waitpid(leader, &status, 0) == leader && WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == 4 && common->parent_of_grandchild == leader);
	CHECK(common->counted == steps + 1000000);
	/* The doubler finds the end of its pipe. */
	CHECK(close(to_doubler[1]) == 0 && read(from_doubler[0], &status, 1) == 0);
	CHECK(waitpid(doubler, &status, 0) == doubler && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
	CHECK(lseek(written, 0, SEEK_END) == 2 * steps);
}
