/* Mutexes in memory that processes share: one whose owner ends without unlocking it, one that inherits priorities, a condition and a
 * barrier. A child holds two of them throughout; the other child counts with its parent. */
#include "victim.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct shared {
	pthread_mutex_t robust, inheriting, counting;
	pthread_cond_t changed;
	pthread_barrier_t met;
	volatile int ending, asked, answered;
} *shared;
static pid_t holder, counter;

static void init(pthread_mutex_t *mutex, int robust, int protocol)
{
	pthread_mutexattr_t kind;
	CHECK(pthread_mutexattr_init(&kind) == 0 && pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_mutexattr_setrobust(&kind, robust) == 0 && pthread_mutexattr_setprotocol(&kind, protocol) == 0);
	CHECK(pthread_mutex_init(mutex, &kind) == 0);
}

/* Ends with both of them locked, when it is told. */
static void hold_both(void)
{
	CHECK(pthread_mutex_lock(&shared->robust) == 0 && pthread_mutex_lock(&shared->inheriting) == 0);
	pthread_barrier_wait(&shared->met);
	CHECK(pthread_mutex_lock(&shared->counting) == 0);
	while (!shared->ending)
		CHECK(pthread_cond_wait(&shared->changed, &shared->counting) == 0);
	CHECK(pthread_mutex_unlock(&shared->counting) == 0 && pthread_mutex_unlock(&shared->inheriting) == 0);
	_exit(5);
}

static void answer(void)
{
	pthread_barrier_wait(&shared->met);
	CHECK(pthread_mutex_lock(&shared->counting) == 0);
	for (;;) {
		while (shared->answered == shared->asked && !shared->ending)
			CHECK(pthread_cond_wait(&shared->changed, &shared->counting) == 0);
		if (shared->ending)
			_exit(pthread_mutex_unlock(&shared->counting) == 0 ? 6 : 1);
		shared->answered = shared->asked;
		CHECK(pthread_cond_broadcast(&shared->changed) == 0);
	}
}

static pid_t child(void (*life)(void))
{
	pid_t made = fork();
	CHECK(made >= 0);
	if (made == 0)
		life();
	return made;
}

static void set_up(void)
{
	pthread_condattr_t condition;
	pthread_barrierattr_t barrier;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	init(&shared->robust, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_NONE);
	init(&shared->inheriting, PTHREAD_MUTEX_ROBUST, PTHREAD_PRIO_INHERIT);
	init(&shared->counting, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	CHECK(pthread_condattr_init(&condition) == 0 && pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_cond_init(&shared->changed, &condition) == 0);
	CHECK(pthread_barrierattr_init(&barrier) == 0);
	CHECK(pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED) == 0);
	CHECK(pthread_barrier_init(&shared->met, &barrier, 3) == 0);
	holder = child(hold_both);
	counter = child(answer);
	pthread_barrier_wait(&shared->met);
}

static void hold(int step)
{
	CHECK(pthread_mutex_trylock(&shared->robust) == EBUSY && pthread_mutex_trylock(&shared->inheriting) == EBUSY);
	CHECK(pthread_mutex_lock(&shared->counting) == 0);
	shared->asked = step;
	CHECK(pthread_cond_broadcast(&shared->changed) == 0);
	while (shared->answered != step)
		CHECK(pthread_cond_wait(&shared->changed, &shared->counting) == 0);
	CHECK(pthread_mutex_unlock(&shared->counting) == 0);
	say("step %d", step);
}

/* Waits for what its owner unlocks, while that is told to end. */
static void *wait_for_inheriting(void *nothing)
{
	CHECK(pthread_mutex_lock(&shared->inheriting) == 0 && pthread_mutex_unlock(&shared->inheriting) == 0);
	return nothing;
}

static void verify(void)
{
	pthread_t waiter;
	int status;
	CHECK(pthread_create(&waiter, NULL, wait_for_inheriting, NULL) == 0);
	sleep_ms(20);
	CHECK(pthread_mutex_lock(&shared->counting) == 0);
	shared->ending = 1;
	CHECK(pthread_cond_broadcast(&shared->changed) == 0 && pthread_mutex_unlock(&shared->counting) == 0);
	CHECK(pthread_join(waiter, NULL) == 0);
	CHECK(waitpid(holder, &status, 0) == holder && WEXITSTATUS(status) == 5);
	CHECK(waitpid(counter, &status, 0) == counter && WEXITSTATUS(status) == 6);
	CHECK(pthread_mutex_lock(&shared->robust) == EOWNERDEAD && pthread_mutex_consistent(&shared->robust) == 0);
	CHECK(pthread_mutex_unlock(&shared->robust) == 0 && pthread_mutex_lock(&shared->robust) == 0);
}
