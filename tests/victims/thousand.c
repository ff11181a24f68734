/* A thousand threads that count in thread-local memory, and wait for one another on a condition and at a barrier. */
#include "victim.h"

enum { THREADS = 1000, STACK_BYTES = 128 * 1024 };
static pthread_t threads[THREADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static int round_now, over;
static uint64_t sums[THREADS];
static __thread uint64_t sum, own;

static void *count(void *argument)
{
	own = (uint64_t)(intptr_t)argument;
	for (int round = 1;; round++) {
		pthread_mutex_lock(&lock);
		while (round_now < round && !over)
			pthread_cond_wait(&begins, &lock);
		int ends = over;
		pthread_mutex_unlock(&lock);
		if (ends)
			return (void *)(uintptr_t)sum;
		sum += mix(own * 1000 + (uint64_t)round);
		sums[own] = sum;
		pthread_barrier_wait(&all);
	}
}

static void set_up(void)
{
	pthread_attr_t small;
	pthread_attr_init(&small);
	CHECK(pthread_attr_setstacksize(&small, STACK_BYTES) == 0);
	CHECK(pthread_barrier_init(&all, NULL, THREADS + 1) == 0);
	for (long number = 0; number < THREADS; number++)
		CHECK(pthread_create(&threads[number], &small, count, (void *)number) == 0);
}

static void hold(int step)
{
	pthread_mutex_lock(&lock);
	round_now = step;
	pthread_cond_broadcast(&begins);
	pthread_mutex_unlock(&lock);
	pthread_barrier_wait(&all);
	static uint64_t expected[THREADS];
	for (uint64_t number = 0; number < THREADS; number++) {
		expected[number] += mix(number * 1000 + (uint64_t)step);
		CHECK(sums[number] == expected[number]);
	}
	say("step %d %016llx", step, (unsigned long long)sum_of(sums, sizeof sums));
}

static void verify(void)
{
	pthread_mutex_lock(&lock);
	over = 1;
	pthread_cond_broadcast(&begins);
	pthread_mutex_unlock(&lock);
	for (int number = 0; number < THREADS; number++) {
		void *last;
		CHECK(pthread_join(threads[number], &last) == 0);
		CHECK((uint64_t)(uintptr_t)last == sums[number]);
	}
}
