/* A thread in vfork: its child executes another program when the file "exec_now" is there, and that one ends when the file
 * "end_child" is. */
#include "victim.h"
#include <sys/wait.h>

static int ends[2];
static pthread_t parent, end;

static void *vfork_and_wait(void *nothing)
{
	int status = 0;
	char *command[] = { "cat", NULL }, *variables[] = { NULL };
	pid_t child = vfork();
	if (child == 0) {
		const struct timespec ms = { 0, 1000000 };
		while (access("exec_now", F_OK) != 0)
			nanosleep(&ms, NULL);
		if (dup2(ends[0], STDIN_FILENO) == STDIN_FILENO)
			execve("/bin/cat", command, variables);
		_exit(127);
	}
	CHECK(child > 0);
	say("executed");
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	say("ended");
	return nothing;
}

static void *wait_for_the_end(void *nothing)
{
	while (access("end_child", F_OK) != 0)
		sleep_ms(1);
	CHECK(close(ends[1]) == 0);
	return nothing;
}

static void set_up(void)
{
	step_ms = 20;
	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	CHECK(pthread_create(&parent, NULL, vfork_and_wait, NULL) == 0);
	CHECK(pthread_create(&end, NULL, wait_for_the_end, NULL) == 0);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	CHECK(pthread_join(parent, NULL) == 0 && pthread_join(end, NULL) == 0);
}
