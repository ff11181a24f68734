/* Children that are stopped, each by another signal, as a shell has them: their parent has not been told yet, is told by which, and has
 * them continue. */
#include "victim.h"
#include <signal.h>
#include <sys/wait.h>

enum { CHILDREN = 4 };

static const int by[CHILDREN] = { SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
static pid_t children[CHILDREN];

static int stop_of(pid_t child, int options)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	CHECK(waitid(P_PID, (id_t)child, &info, WSTOPPED | options) == 0);
	return info.si_pid == child && info.si_code == CLD_STOPPED ? info.si_status : 0;
}

static void set_up(void)
{
	for (int each = 0; each < CHILDREN; each++) {
		children[each] = fork();
		CHECK(children[each] >= 0);
		if (children[each] == 0) {
			setpgid(0, 0);
			for (;;)
				pause();
		}
		setpgid(children[each], children[each]);
		CHECK(kill(children[each], by[each]) == 0 && stop_of(children[each], WNOWAIT) == by[each]);
	}
}

static void hold(int step)
{
	for (int each = 0; each < CHILDREN; each++)
		if (stop_of(children[each], WNOWAIT | WNOHANG) != by[each])
			FAIL("step %d: child %d was stopped by %d: %d", step, each, by[each], stop_of(children[each], WNOWAIT | WNOHANG));
	say("step %d", step);
}

static void verify(void)
{
	for (int each = 0; each < CHILDREN; each++) {
		siginfo_t info;
		CHECK(stop_of(children[each], WNOHANG) == by[each] && stop_of(children[each], WNOHANG) == 0);
		CHECK(kill(children[each], SIGCONT) == 0 && waitid(P_PID, (id_t)children[each], &info, WCONTINUED) == 0);
		CHECK(kill(children[each], SIGTERM) == 0 && waitid(P_PID, (id_t)children[each], &info, WEXITED) == 0);
		CHECK(info.si_code == CLD_KILLED && info.si_status == SIGTERM);
	}
}
