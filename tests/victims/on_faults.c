/* What is to become of a process when something fails, of its own and its child's: what a core dump has, and whether a thread is told of
 * broken memory before it uses that. */
#include "victim.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static int ask_child[2], child_answers[2];
static pid_t child;

static unsigned read_filter(void)
{
	unsigned filter = 0;
	FILE *file = fopen("/proc/self/coredump_filter", "r");
	CHECK(file != NULL && fscanf(file, "%x", &filter) == 1);
	fclose(file);
	return filter;
}

static void choose(unsigned filter, unsigned long policy)
{
	FILE *file = fopen("/proc/self/coredump_filter", "w");
	CHECK(file != NULL && fprintf(file, "0x%x", filter) > 0 && fclose(file) == 0);
	CHECK(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, policy, 0, 0) == 0);
}

static int is_chosen(unsigned filter, int policy)
{
	return read_filter() == filter && prctl(PR_MCE_KILL_GET, 0, 0, 0, 0) == policy;
}

static void *ask_in_a_thread(void *unused)
{
	(void)unused;
	return (void *)(long)prctl(PR_MCE_KILL_GET, 0, 0, 0, 0);
}

static void set_up(void)
{
	choose(0x7f, PR_MCE_KILL_EARLY);
	CHECK(pipe(ask_child) == 0 && pipe(child_answers) == 0);
	child = fork();
	if (child == 0) {
		char byte;
		close(ask_child[1]);
		choose(0x21, PR_MCE_KILL_LATE);
		while (read(ask_child[0], &byte, 1) == 1) {
			byte = (char)is_chosen(0x21, PR_MCE_KILL_LATE);
			CHECK(write(child_answers[1], &byte, 1) == 1);
		}
		_exit(6);
	}
}

static void hold(int step)
{
	char byte = 0;
	CHECK(is_chosen(0x7f, PR_MCE_KILL_EARLY));
	CHECK(write(ask_child[1], "?", 1) == 1 && read(child_answers[0], &byte, 1) == 1 && byte == 1);
	say("step %d", step);
}

static void verify(void)
{
	pthread_t thread;
	void *found;
	int status;
	CHECK(pthread_create(&thread, NULL, ask_in_a_thread, NULL) == 0 && pthread_join(thread, &found) == 0);
	CHECK((long)found == PR_MCE_KILL_EARLY);
	close(ask_child[1]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 6);
}
