/* A program that ends its own children by SIGUSR1, for which they have no handler: one that it has forked, and one that it has executed. */
#include "victim.h"
#include <signal.h>
#include <sys/wait.h>

static pid_t child_of(int is_executed)
{
	int ends[2];
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		if (is_executed) {
			execlp("sleep", "sleep", "100", (char *)NULL);
			_exit(1);
		}
		close(ends[1]);
		for (;;)
			pause();
	}
	close(ends[1]);
	/* It has executed the other program, or closed it. */
	char byte;
	CHECK(read(ends[0], &byte, 1) == 0);
	close(ends[0]);
	return child;
}

static void set_up(void)
{
}

static void hold(int step)
{
	for (int is_executed = 0; is_executed < 2; is_executed++) {
		pid_t child = child_of(is_executed);
		int status;
		if (step % 2 == 0)
			sleep_ms(10); /* By then, libckpt.so has its handler in the executed one. */
		CHECK(kill(child, SIGUSR1) == 0);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	}
	say("step %d", step);
}

static void verify(void)
{
}
