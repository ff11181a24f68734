/* Processes that are born and end all the time: none may be lost, doubled, or waited for in vain. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { AT_ONCE = 6 };

static volatile int *work;

static void set_up(void)
{
	step_ms = 5;
	work = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(work != MAP_FAILED);
}

/* A child works, and has a child of its own that works. */
static void be_child(int place, int step)
{
	int status;
	pid_t grandchild = fork();
	if (grandchild == 0) {
		__sync_fetch_and_add(&work[1], step);
		_exit(place);
	}
	if (grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild || WEXITSTATUS(status) != place)
		_exit(200);
	__sync_fetch_and_add(&work[0], 1);
	_exit(100 + place);
}

static void hold(int step)
{
	pid_t children[AT_ONCE];
	for (int place = 0; place < AT_ONCE; place++) {
		children[place] = fork();
		CHECK(children[place] >= 0);
		if (children[place] == 0)
			be_child(place, step);
	}
	for (int place = 0; place < AT_ONCE; place++) {
		int status;
		CHECK(waitpid(children[place], &status, 0) == children[place]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 100 + place);
	}
	say("step %d: %d by children, %d by theirs", step, work[0], work[1]);
}

static void verify(void)
{
	CHECK(work[0] == AT_ONCE * steps && work[1] == AT_ONCE * steps * (steps + 1) / 2);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}
