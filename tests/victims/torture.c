/* A job that forks, executes programs, makes threads, leaves daemons behind, leads sessions, and has all of them end, as fast as it can.
 * What they have done is counted in shared memory, each exactly once. */
#include "victim.h"
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WORKERS = 4 };

struct counts {
	volatile int born, forked, executed, threads, daemons_begun, daemons, sessions;
	volatile int steps_of[WORKERS];
};

static struct counts *counts;
static volatile int *over;
static pid_t own, workers[WORKERS];
static char own_path[4096];
extern char **environ;

static void count(volatile int *counter)
{
	__sync_fetch_and_add(counter, 1);
}

static void reap(pid_t child, int code)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code);
}

static void *be_thread(void *counter)
{
	count(counter);
	return NULL;
}

/* A grandchild that outlives its parent, in a session of its own or in its parent's. */
static void leave_daemon(int leads)
{
	count(&counts->daemons_begun);
	pid_t middle = fork();
	CHECK(middle >= 0);
	if (middle == 0) {
		CHECK(setsid() == getpid());
		pid_t daemon = fork();
		if (daemon == 0) {
			if (leads)
				CHECK(setsid() == getpid());
			sleep_ms(1);
			count(&counts->daemons);
			_exit(0);
		}
		_exit(daemon < 0 ? 1 : 21);
	}
	reap(middle, 21);
}

static void one_round(int round)
{
	pthread_t thread;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (round % 2) {
			CHECK(setsid() == getpid());
			count(&counts->sessions);
		}
		CHECK(pthread_create(&thread, NULL, be_thread, (void *)&counts->threads) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		count(&counts->forked);
		_exit(22);
	}
	reap(child, 22);
	if (round % 4 == 0) {
		char *arguments[] = { own_path, "0", "executed", NULL };
		CHECK(posix_spawn(&child, own_path, NULL, NULL, arguments, environ) == 0);
		reap(child, 23);
		count(&counts->executed);
	}
	leave_daemon(round % 3 == 0);
	/* Fewer at a time than there are ids. */
	while (counts->daemons_begun - counts->daemons > 40)
		sleep_ms(1);
}

static void be_worker(int which)
{
	int round = 0;
	/* Nor without the first process. */
	while (!*over && getppid() == own) {
		one_round(++round);
		count(&counts->born);
		counts->steps_of[which] = round;
	}
	_exit(24);
}

static void set_up(void)
{
	if (strcmp(kind, "executed") == 0)
		_exit(23);
	step_ms = 5;
	/* Others have work to do as well. */
	CHECK(nice(10) != -1);
	ssize_t bytes = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
	CHECK(bytes > 0);
	own_path[bytes] = 0;
	counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(counts != MAP_FAILED);
	over = (volatile int *)(counts + 1);
	own = getpid();
	for (int which = 0; which < WORKERS; which++) {
		workers[which] = fork();
		CHECK(workers[which] >= 0);
		if (workers[which] == 0)
			be_worker(which);
	}
}

static void hold(int step)
{
	for (int which = 0; which < WORKERS; which++)
		for (int before = counts->steps_of[which]; counts->steps_of[which] == before;) {
			CHECK(waitpid(workers[which], NULL, WNOHANG) == 0);
			sleep_ms(1);
		}
	say("step %d", step);
}

static void verify(void)
{
	*over = 1;
	for (int which = 0; which < WORKERS; which++)
		reap(workers[which], 24);
	while (counts->daemons != counts->daemons_begun)
		sleep_ms(1);
	int rounds = 0;
	for (int which = 0; which < WORKERS; which++)
		rounds += counts->steps_of[which];
	CHECK(counts->born == rounds && counts->forked == rounds && counts->threads == rounds && counts->daemons == rounds);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}
