/* Processes that have one descriptor table (clone with CLONE_FILES): a child, and a child of that one; what one opens or closes at a step, the
 * others find. A third one was forked, and has a table for itself. Among the descriptors are a pidfd, which a restart makes last, and
 * an epoll set. */
#include "victim.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { FIRST = 70, COUNT = 6, PIDFD = 90, EVENTS = 91 };

struct helper {
	unsigned long flags;
	/* A child of its own. */
	struct helper *below;
	pid_t pid;
	int asks[2], answers[2];
};

static struct helper deep = { .flags = CLONE_FILES }, beside = { .flags = CLONE_FILES, .below = &deep }, apart;

/* Which of the numbers are open. */
static char open_ones(void)
{
	int mask = 0;
	for (int i = 0; i < COUNT; i++)
		mask |= (fcntl(FIRST + i, F_GETFD) >= 0) << i;
	return (char)(' ' + mask);
}

static char ask(struct helper *helper, char what)
{
	CHECK(write(helper->asks[1], &what, 1) == 1 && read(helper->answers[0], &what, 1) == 1);
	return what;
}

static void wait_for(struct helper *helper)
{
	int status;
	CHECK(ask(helper, 'q') == 'q');
	CHECK(waitpid(helper->pid, &status, 0) == helper->pid && WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

static char answer(struct helper *self, char what)
{
	if (what == '?')
		return open_ones();
	if (what == 'd')
		return ask(self->below, '?');
	if (what == 'q' && self->below != NULL)
		wait_for(self->below);
	/* A digit is a number to be closed. */
	if (what >= '0' && what <= '9')
		CHECK(close(FIRST + what - '0') == 0);
	return what;
}

static void start(struct helper *helper)
{
	CHECK(pipe(helper->asks) == 0 && pipe(helper->answers) == 0);
	helper->pid = (pid_t)syscall(SYS_clone, helper->flags | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(helper->pid >= 0);
	if (helper->pid != 0)
		return;
	if (helper->below != NULL)
		start(helper->below);
	char byte = 0;
	while (byte != 'q' && read(helper->asks[0], &byte, 1) == 1) {
		char said = answer(helper, byte);
		CHECK(write(helper->answers[1], &said, 1) == 1);
	}
	_exit(6);
}

static void set_up(void)
{
	start(&apart);
	start(&beside);
	int pidfd = (int)syscall(SYS_pidfd_open, beside.pid, 0), events = epoll_create1(0);
	CHECK(pidfd >= 0 && events >= 0 && dup2(pidfd, PIDFD) == PIDFD && dup2(events, EVENTS) == EVENTS);
	close(pidfd);
	close(events);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = 5 };
	CHECK(epoll_ctl(EVENTS, EPOLL_CTL_ADD, PIDFD, &event) == 0);
}

static void hold(int step)
{
	int place = step * 5 % COUNT;
	if (fcntl(FIRST + place, F_GETFD) < 0)
		CHECK(dup2(step % 2 ? PIDFD : beside.asks[0], FIRST + place) == FIRST + place);
	else
		ask(&beside, (char)('0' + place));
	struct epoll_event event;
	int events = epoll_wait(EVENTS, &event, 1, 0);
	say("%d own %c beside %c below %c apart %c, events %d", step, open_ones(), ask(&beside, '?'), ask(&beside, 'd'),
	    ask(&apart, '?'), events);
}

static void verify(void)
{
	wait_for(&beside);
	wait_for(&apart);
	struct pollfd ended = { .fd = PIDFD, .events = POLLIN };
	say("ended %d", poll(&ended, 1, 0));
}
