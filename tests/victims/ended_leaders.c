/* A child has led a session, left a child of its own there, and ended by itself or by a signal; its parent has not waited for it. Both are as
 * before: the ended one can be waited for, with its status; the other is in its session and group. */
#include "victim.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LEADERS = 2 };

static pid_t leaders[LEADERS], helpers[LEADERS];

__attribute__((noreturn)) static void help(void)
{
	prctl(PR_SET_PDEATHSIG, 0);
	for (;;)
		pause();
}

__attribute__((noreturn)) static void lead(int number, int end)
{
	setsid();
	pid_t helper = fork();
	if (helper == 0) {
		close(end);
		help();
	}
	if (write(end, &helper, sizeof helper) != sizeof helper)
		_exit(1);
	if (number == 1)
		raise(SIGKILL);
	_exit(3);
}

static void set_up(void)
{
	for (int number = 0; number < LEADERS; number++) {
		int ends[2];
		siginfo_t info;
		CHECK(pipe(ends) == 0);
		leaders[number] = fork();
		CHECK(leaders[number] >= 0);
		if (leaders[number] == 0)
			lead(number, ends[1]);
		CHECK(read(ends[0], &helpers[number], sizeof helpers[number]) == sizeof helpers[number]);
		CHECK(waitid(P_PID, (id_t)leaders[number], &info, WEXITED | WNOWAIT) == 0);
		close(ends[0]), close(ends[1]);
	}
}

static void hold(int step)
{
	for (int number = 0; number < LEADERS; number++) {
		siginfo_t info;
		CHECK(waitid(P_PID, (id_t)leaders[number], &info, WEXITED | WNOWAIT | WNOHANG) == 0);
		CHECK(info.si_pid == leaders[number] && info.si_status == (number == 1 ? SIGKILL : 3));
		CHECK(getsid(helpers[number]) == leaders[number] && getpgid(helpers[number]) == leaders[number]);
	}
	say("step %d", step);
}

static void verify(void)
{
	int status;
	for (int number = 0; number < LEADERS; number++)
		CHECK(kill(helpers[number], SIGKILL) == 0);
	CHECK(waitpid(leaders[0], &status, 0) == leaders[0] && WIFEXITED(status) && WEXITSTATUS(status) == 3);
	CHECK(waitpid(leaders[1], &status, 0) == leaders[1] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
