/* A worker that gives up its rights, as servers and `su -c` have it: a grandchild of the first process, which works as user and
 * group CKPT_VICTIM_USER. Its parent ends when "parent_over" is there. KIND "early": before the first step. */
#include "victim.h"
#include <grp.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct {
	volatile int worker, beats, over;
} *shared;

static void work(uid_t user)
{
	CHECK(setgroups(0, NULL) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
	shared->worker = getpid();
	while (!shared->over) {
		shared->beats++;
		sleep_ms(1);
	}
	_exit(0);
}

static void be_parent(void)
{
	uid_t user = (uid_t)atoi(getenv("CKPT_VICTIM_USER"));
	if (fork() == 0)
		work(user);
	while (strcmp(kind, "early") != 0 ? access("parent_over", F_OK) != 0 : shared->worker == 0)
		sleep_ms(1);
	_exit(0);
}

static void set_up(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pid_t parent = fork();
	if (parent == 0)
		be_parent();
	if (strcmp(kind, "early") == 0)
		CHECK(waitpid(parent, NULL, 0) == parent);
	while (shared->worker == 0)
		sleep_ms(1);
	say("worker %d", shared->worker);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	int beats = shared->beats;
	sleep_ms(200);
	CHECK(shared->beats > beats);
	shared->over = 1;
}
