/* A program that adopts orphans (a child subreaper), and has adopted one: it has that child and no other, and gets the next orphan, too. */
#include "victim.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static int ends[2];
static pid_t orphan;

/* Makes an orphan, which lives as long as somebody can write to the pipe, or ends at once. */
static pid_t make_orphan(int lives)
{
	int told[2];
	pid_t found;
	CHECK(pipe(told) == 0);
	pid_t child = fork();
	if (child == 0) {
		pid_t inner = fork();
		if (inner == 0) {
			char byte;
			close(ends[1]);
			_exit(lives ? 5 + (int)read(ends[0], &byte, 1) : 9);
		}
		_exit(write(told[1], &inner, sizeof inner) != sizeof inner);
	}
	CHECK(child > 0 && waitpid(child, NULL, 0) == child && read(told[0], &found, sizeof found) == sizeof found);
	close(told[0]), close(told[1]);
	return found;
}

static void set_up(void)
{
	CHECK(pipe(ends) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	orphan = make_orphan(1);
}

static void hold(int step)
{
	int adopts = 0;
	CHECK(prctl(PR_GET_CHILD_SUBREAPER, &adopts) == 0 && adopts == 1);
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == 0);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	pid_t next = make_orphan(0);
	CHECK(waitpid(next, &status, 0) == next && WIFEXITED(status) && WEXITSTATUS(status) == 9);
	close(ends[1]);
	CHECK(waitpid(-1, &status, 0) == orphan && WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
}
