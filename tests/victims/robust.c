/* Robust mutexes: their owner ends without unlocking them, in the life after the checkpoint. One is waited for, one is not,
 * one inherits priorities, one is given up for ever; and threads that are joined later, or are being joined. */
#include "victim.h"
#include <semaphore.h>

enum { AWAITED, FREE, INHERITING, LOST, MUTEXES };
static pthread_mutex_t mutexes[MUTEXES];
static pthread_t owner, waiter, joiner, joined;
static sem_t taken, end, end_of_joined;
static volatile int waiter_got = -1, join_gave = -1;

static void *own(void *nothing)
{
	(void)nothing;
	for (int index = 0; index < MUTEXES; index++)
		CHECK(pthread_mutex_lock(&mutexes[index]) == 0);
	sem_post(&taken);
	while (sem_wait(&end) != 0)
		;
	return (void *)11;
}

static void *wait_for_it(void *nothing)
{
	(void)nothing;
	int got = pthread_mutex_lock(&mutexes[AWAITED]);
	if (got == EOWNERDEAD) {
		CHECK(pthread_mutex_consistent(&mutexes[AWAITED]) == 0);
		CHECK(pthread_mutex_unlock(&mutexes[AWAITED]) == 0);
	}
	waiter_got = got;
	return (void *)12;
}

static void *be_joined(void *nothing)
{
	(void)nothing;
	while (sem_wait(&end_of_joined) != 0)
		;
	return (void *)13;
}

static void *join(void *nothing)
{
	(void)nothing;
	void *answer;
	CHECK(pthread_join(joined, &answer) == 0);
	join_gave = (int)(intptr_t)answer;
	return (void *)14;
}

static void set_up(void)
{
	pthread_mutexattr_t robust;
	pthread_mutexattr_init(&robust);
	CHECK(pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST) == 0);
	for (int index = 0; index < MUTEXES; index++) {
		int protocol = index == INHERITING ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE;
		CHECK(pthread_mutexattr_setprotocol(&robust, protocol) == 0);
		CHECK(pthread_mutex_init(&mutexes[index], &robust) == 0);
	}
	sem_init(&taken, 0, 0);
	sem_init(&end, 0, 0);
	sem_init(&end_of_joined, 0, 0);
	CHECK(pthread_create(&owner, NULL, own, NULL) == 0);
	while (sem_wait(&taken) != 0)
		;
	CHECK(pthread_create(&waiter, NULL, wait_for_it, NULL) == 0);
	CHECK(pthread_create(&joined, NULL, be_joined, NULL) == 0);
	CHECK(pthread_create(&joiner, NULL, join, NULL) == 0);
}

static void hold(int step)
{
	for (int index = 0; index < MUTEXES; index++)
		CHECK(pthread_mutex_trylock(&mutexes[index]) == EBUSY);
	CHECK(waiter_got == -1 && join_gave == -1);
	say("step %d", step);
}

static void verify(void)
{
	void *answer;
	sem_post(&end);
	CHECK(pthread_join(owner, &answer) == 0 && answer == (void *)11);
	CHECK(pthread_join(waiter, &answer) == 0 && answer == (void *)12);
	CHECK(waiter_got == EOWNERDEAD);
	CHECK(pthread_mutex_trylock(&mutexes[AWAITED]) == 0);
	for (int index = FREE; index <= INHERITING; index++) {
		CHECK(pthread_mutex_lock(&mutexes[index]) == EOWNERDEAD);
		CHECK(pthread_mutex_consistent(&mutexes[index]) == 0);
		CHECK(pthread_mutex_unlock(&mutexes[index]) == 0);
		CHECK(pthread_mutex_lock(&mutexes[index]) == 0);
	}
	CHECK(pthread_mutex_lock(&mutexes[LOST]) == EOWNERDEAD);
	CHECK(pthread_mutex_unlock(&mutexes[LOST]) == 0);
	CHECK(pthread_mutex_lock(&mutexes[LOST]) == ENOTRECOVERABLE);
	sem_post(&end_of_joined);
	CHECK(pthread_join(joiner, &answer) == 0 && answer == (void *)14);
	CHECK(join_gave == 13);
}
