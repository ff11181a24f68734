/* Places in groups and sessions that are none of those that a parent hands on: of groups whose leader has gone, and of a session that
 * the parent has left. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MATE, OTHER_MATE, CHILD_OF_MATE, LEADER, OLDER, OLDER_STILL, YOUNGER, LATE_LEADER, ALL };

struct place {
	volatile int pid, parent, beats;
};

static struct place *places;
static volatile int *over;
static pid_t own, lost, ended;

/* Says who it is until it is over. */
static void beat(int which)
{
	do {
		places[which].parent = getppid();
		places[which].beats++;
		sleep_ms(1);
	} while (!*over);
}

static void be(int which)
{
	beat(which);
	_exit(which);
}

static pid_t born(int which)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		places[which].pid = getpid();
		return 0;
	}
	places[which].pid = child;
	return child;
}

static void wait_for(pid_t child, int code)
{
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* A member of the group whose leader has gone, with a child that is in there by its birth. */
static void be_other_mate(void)
{
	while (getpgrp() == getpgid(own))
		sleep_ms(1);
	pid_t child = born(CHILD_OF_MATE);
	if (child == 0)
		be(CHILD_OF_MATE);
	beat(OTHER_MATE);
	wait_for(child, CHILD_OF_MATE);
	_exit(OTHER_MATE);
}

/* Leads a session that its oldest children are not in, one of which does the same. */
static void be_leader(void)
{
	pid_t older = born(OLDER);
	if (older == 0)
		be(OLDER);
	pid_t late = born(LATE_LEADER);
	if (late == 0) {
		pid_t still = born(OLDER_STILL);
		if (still == 0)
			be(OLDER_STILL);
		CHECK(setsid() == getpid());
		beat(LATE_LEADER);
		wait_for(still, OLDER_STILL);
		_exit(LATE_LEADER);
	}
	CHECK(setsid() == getpid());
	pid_t younger = born(YOUNGER);
	if (younger == 0)
		be(YOUNGER);
	beat(LEADER);
	wait_for(older, OLDER);
	wait_for(late, LATE_LEADER);
	wait_for(younger, YOUNGER);
	_exit(LEADER);
}

static void set_up(void)
{
	own = getpid();
	places = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(places != MAP_FAILED);
	over = (volatile int *)(places + ALL);
	lost = fork();
	if (lost == 0)
		for (;;)
			pause();
	CHECK(lost > 0 && setpgid(lost, lost) == 0);
	if (born(MATE) == 0)
		be(MATE);
	CHECK(setpgid(places[MATE].pid, lost) == 0);
	if (born(OTHER_MATE) == 0)
		be_other_mate();
	CHECK(setpgid(places[OTHER_MATE].pid, lost) == 0);
	/* One that has ended in there, and was not waited for. */
	ended = fork();
	if (ended == 0) {
		CHECK(setpgid(0, lost) == 0);
		_exit(9);
	}
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0 && info.si_status == 9);
	if (born(LEADER) == 0)
		be_leader();
	for (int which = 0; which < ALL; which++)
		while (places[which].beats == 0)
			sleep_ms(1);
	CHECK(kill(lost, SIGKILL) == 0 && waitpid(lost, NULL, 0) == lost);
}

static void is_at(int which, pid_t parent, pid_t group, pid_t session)
{
	struct place *place = &places[which];
	if (place->parent != parent || getpgid(place->pid) != group || getsid(place->pid) != session)
		FAIL("process %d: parent %d for %d, group %d for %d, session %d for %d", which, place->parent, parent,
		     getpgid(place->pid), group, getsid(place->pid), session);
}

static void hold(int step)
{
	for (int which = 0; which < ALL; which++)
		for (int beats = places[which].beats; places[which].beats < beats + 2;)
			sleep_ms(1);
	pid_t leader = places[LEADER].pid, late = places[LATE_LEADER].pid;
	is_at(MATE, own, lost, getsid(0));
	is_at(OTHER_MATE, own, lost, getsid(0));
	is_at(CHILD_OF_MATE, places[OTHER_MATE].pid, lost, getsid(0));
	is_at(LEADER, own, leader, leader);
	is_at(OLDER, leader, getpgrp(), getsid(0));
	is_at(YOUNGER, leader, leader, leader);
	is_at(LATE_LEADER, leader, late, late);
	is_at(OLDER_STILL, late, getpgrp(), getsid(0));
	CHECK(kill(lost, 0) != 0 && errno == ESRCH && kill(-lost, 0) == 0);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	CHECK(waitpid(-lost, &status, 0) == ended && WIFEXITED(status) && WEXITSTATUS(status) == 9);
	CHECK(waitpid(-lost, &status, WNOHANG) == 0);
	*over = 1;
	wait_for(places[MATE].pid, MATE);
	wait_for(places[OTHER_MATE].pid, OTHER_MATE);
	CHECK(waitpid(-lost, &status, WNOHANG) == -1 && errno == ECHILD && kill(-lost, 0) != 0);
	wait_for(places[LEADER].pid, LEADER);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}
