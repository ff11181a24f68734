/* Processes whose parents have ended: in a session whose leader has ended, at the head of one, in that of the first process, and in
 * that of another. They are the job's, and what they share with it stays shared. KIND "leaves": the first process becomes a
 * daemon, and what it began with ends at once. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { DAEMON, CHILD_OF_DAEMON, LEADER, MATE, OTHER, STAYS, ALL };

struct place {
	volatile int pid, parent, session, group, beats, over;
};

static struct place *places;
static volatile int *over;
static pid_t own, lost;
static int to_daemon[2], from_daemon[2];

static void beat(int which)
{
	struct place *place = &places[which];
	place->parent = getppid();
	place->session = getsid(0);
	place->group = getpgrp();
	place->beats++;
}

static void be(int which)
{
	places[which].pid = getpid();
	while (!*over) {
		beat(which);
		sleep_ms(1);
	}
	places[which].over = 1;
	_exit(0);
}

/* Doubles numbers, and writes a line for each. */
static void be_daemon(void)
{
	int value;
	places[DAEMON].pid = getpid();
	CHECK(close(to_daemon[1]) == 0 && close(from_daemon[0]) == 0);
	FILE *log = fopen("daemon_log", "a");
	CHECK(log != NULL);
	pid_t child = fork();
	if (child == 0)
		be(CHILD_OF_DAEMON);
	while (read(to_daemon[0], &value, sizeof value) == sizeof value) {
		beat(DAEMON);
		CHECK(fprintf(log, "%d\n", value) > 0 && fflush(log) == 0);
		value *= 2;
		CHECK(write(from_daemon[1], &value, sizeof value) == sizeof value);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	places[DAEMON].over = 1;
	_exit(0);
}

/* Has `life` be led by a child of a child that ends. */
static pid_t orphaned(void (*life)(void), int new_session)
{
	pid_t middle = fork();
	CHECK(middle >= 0);
	if (middle == 0) {
		if (new_session)
			CHECK(setsid() == getpid());
		middle = getpid();
		pid_t child = fork();
		if (child == 0) {
			/* Not before it is an orphan. */
			while (getppid() == middle)
				sleep_ms(1);
			life();
		}
		_exit(child < 0);
	}
	int status;
	CHECK(waitpid(middle, &status, 0) == middle && status == 0);
	return middle;
}

static void be_leader(void)
{
	CHECK(setsid() == getpid());
	be(LEADER);
}

static void be_mate(void)
{
	be(MATE);
}

static void be_other(void)
{
	be(OTHER);
}

static void be_one_that_stays(void)
{
	CHECK(setsid() == getpid());
	orphaned(be_other, 0);
	be(STAYS);
}

static void become_daemon(void)
{
	for (int times = 0; times < 2; times++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child > 0)
			_exit(0);
		if (times == 0)
			CHECK(setsid() == getpid());
	}
	while (getppid() == getsid(0))
		sleep_ms(1);
}

static void set_up(void)
{
	if (strcmp(kind, "leaves") == 0)
		become_daemon();
	own = getpid();
	places = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(places != MAP_FAILED && pipe(to_daemon) == 0 && pipe(from_daemon) == 0);
	over = (volatile int *)(places + ALL);
	lost = orphaned(be_daemon, 1);
	CHECK(close(to_daemon[0]) == 0 && close(from_daemon[1]) == 0);
	orphaned(be_leader, 0);
	orphaned(be_mate, 0);
	pid_t stays = fork();
	if (stays == 0)
		be_one_that_stays();
	for (int which = 0; which < ALL; which++)
		while (which != DAEMON && places[which].beats == 0)
			sleep_ms(1);
}

static void is_at(int which, pid_t session, pid_t group)
{
	struct place *place = &places[which];
	if (place->session != session || place->group != group)
		FAIL("process %d: session %d for %d, group %d for %d", which, place->session, session, place->group, group);
	for (int other = 0; other < ALL; other++)
		if (which != CHILD_OF_DAEMON && which != STAYS && (place->parent == places[other].pid || place->parent == own))
			FAIL("process %d has a parent in the job, %d", which, place->parent);
}

static void hold(int step)
{
	int value = step;
	pid_t session, group;
	do {
		/* Whoever has said last where he is may have said it in an earlier life, in which our session was another. */
		session = getsid(0);
		group = getpgrp();
		for (int which = 0; which < ALL; which++)
			for (int beats = places[which].beats; which != DAEMON && places[which].beats < beats + 2;)
				sleep_ms(1);
	} while (getsid(0) != session || getpgrp() != group);
	CHECK(write(to_daemon[1], &value, sizeof value) == sizeof value);
	CHECK(read(from_daemon[0], &value, sizeof value) == sizeof value && value == 2 * step);
	is_at(DAEMON, lost, lost);
	is_at(CHILD_OF_DAEMON, lost, lost);
	CHECK(places[CHILD_OF_DAEMON].parent == places[DAEMON].pid);
	is_at(LEADER, places[LEADER].pid, places[LEADER].pid);
	is_at(MATE, session, group);
	is_at(OTHER, places[STAYS].pid, places[STAYS].pid);
	is_at(STAYS, places[STAYS].pid, places[STAYS].pid);
	CHECK(places[STAYS].parent == own && getpid() == own);
	CHECK(kill(lost, 0) != 0 && errno == ESRCH);
	say("step %d", step);
}

static void verify(void)
{
	*over = 1;
	CHECK(close(to_daemon[1]) == 0);
	char byte;
	CHECK(read(from_daemon[0], &byte, 1) == 0);
	CHECK(waitpid(-1, NULL, 0) == places[STAYS].pid);
	for (int which = 0; which < ALL; which++)
		while (!places[which].over)
			sleep_ms(1);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
}
