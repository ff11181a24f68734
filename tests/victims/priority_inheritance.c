/* A mutex that inherits priorities: one thread holds it, others wait in FUTEX_LOCK_PI and FUTEX_LOCK_PI2 over each step. */
#include "victim.h"
#include <semaphore.h>

enum { CONTENDERS = 3 };
static const unsigned has_waiters = 0x80000000u;
static pthread_mutex_t mutex;
static pthread_t threads[CONTENDERS + 1];
static sem_t take, taken, give, round_begins[CONTENDERS], got_it;
static int count; /* what the mutex protects */
static volatile int over;

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		CHECK(errno == EINTR);
}

static void *hold_it(void *nothing)
{
	for (;;) {
		wait_for(&take);
		if (over)
			return nothing;
		CHECK(pthread_mutex_lock(&mutex) == 0);
		sem_post(&taken);
		wait_for(&give);
		CHECK(pthread_mutex_unlock(&mutex) == 0);
	}
}

static void *contend(void *argument)
{
	long number = (long)argument;
	for (;;) {
		wait_for(&round_begins[number]);
		if (over)
			return NULL;
		struct timespec far;
		clock_gettime(CLOCK_MONOTONIC, &far);
		far.tv_sec += 3600;
		/* With a time-out it is FUTEX_LOCK_PI2. */
		CHECK((number == 0 ? pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &far) : pthread_mutex_lock(&mutex)) == 0);
		count++;
		CHECK(pthread_mutex_unlock(&mutex) == 0);
		sem_post(&got_it);
	}
}

/* From here on until end_round() the mutex is held and waited for. */
static void begin_round(void)
{
	sem_post(&take);
	wait_for(&taken);
	for (int number = 0; number < CONTENDERS; number++)
		sem_post(&round_begins[number]);
	while (!(__atomic_load_n((unsigned *)&mutex.__data.__lock, __ATOMIC_SEQ_CST) & has_waiters))
		sleep_ms(1);
}

static void end_round(int rounds)
{
	CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
	CHECK(count == (rounds - 1) * CONTENDERS);
	sem_post(&give);
	for (int number = 0; number < CONTENDERS; number++)
		wait_for(&got_it);
	CHECK(pthread_mutex_lock(&mutex) == 0);
	CHECK(count == rounds * CONTENDERS);
	CHECK(pthread_mutex_unlock(&mutex) == 0);
}

static void set_up(void)
{
	pthread_mutexattr_t inheriting;
	pthread_mutexattr_init(&inheriting);
	CHECK(pthread_mutexattr_setprotocol(&inheriting, PTHREAD_PRIO_INHERIT) == 0);
	CHECK(pthread_mutex_init(&mutex, &inheriting) == 0);
	sem_t *all[] = { &take, &taken, &give, &got_it };
	for (size_t index = 0; index < sizeof all / sizeof *all; index++)
		sem_init(all[index], 0, 0);
	CHECK(pthread_create(&threads[CONTENDERS], NULL, hold_it, NULL) == 0);
	for (long number = 0; number < CONTENDERS; number++) {
		sem_init(&round_begins[number], 0, 0);
		CHECK(pthread_create(&threads[number], NULL, contend, (void *)number) == 0);
	}
	begin_round();
}

static void hold(int step)
{
	end_round(step);
	begin_round();
	say("step %d", step);
}

static void verify(void)
{
	end_round(steps + 1);
	over = 1;
	sem_post(&take);
	for (int number = 0; number < CONTENDERS; number++)
		sem_post(&round_begins[number]);
	for (int number = 0; number <= CONTENDERS; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
}
