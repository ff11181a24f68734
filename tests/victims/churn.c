/* Threads born and dying all the time: three spawners, each creating and joining batches of short threads.
 *
 * The sums are added up, so a thread that is lost, doubled or never joined changes a line or hangs it. A pause after
 * each step gives the program a least length on any machine; KIND "unpaced" leaves it out. */
#include "victim.h"

enum { SPAWNERS = 3, BATCH = 8, BATCHES_PER_STEP = 4 };

static pthread_barrier_t begin, end;
static uint64_t sums[SPAWNERS];
static pthread_t spawners[SPAWNERS];

static void *short_life(void *argument)
{
	uint64_t value = *(uint64_t *)argument;
	char on_stack[2000];
	memset(on_stack, (int)value, sizeof on_stack);
	for (int i = 0; i < 3000; i++)
		value = mix(value);
	char *on_heap = malloc(1000 + value % 5000);
	memcpy(on_heap, on_stack, 1000);
	value ^= sum_of(on_heap, 1000);
	free(on_heap);
	*(uint64_t *)argument = value;
	return NULL;
}

static void *spawner(void *argument)
{
	long number = (long)argument;
	for (int step = 1; step <= steps; step++) {
		pthread_barrier_wait(&begin);
		for (int batch = 0; batch < BATCHES_PER_STEP; batch++) {
			pthread_t threads[BATCH];
			uint64_t values[BATCH];
			for (int i = 0; i < BATCH; i++) {
				values[i] = (uint64_t)step * 1000003 + (uint64_t)(number * 1009 + batch * 101 + i);
				CHECK(pthread_create(&threads[i], NULL, short_life, &values[i]) == 0);
			}
			for (int i = 0; i < BATCH; i++) {
				CHECK(pthread_join(threads[i], NULL) == 0);
				sums[number] = mix(sums[number] ^ values[i]);
			}
		}
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static void set_up(void)
{
	if (strcmp(kind, "unpaced") == 0)
		step_ms = 0;
	pthread_barrier_init(&begin, NULL, SPAWNERS + 1);
	pthread_barrier_init(&end, NULL, SPAWNERS + 1);
	for (long i = 0; i < SPAWNERS; i++)
		CHECK(pthread_create(&spawners[i], NULL, spawner, (void *)i) == 0);
}

static void hold(int step)
{
	pthread_barrier_wait(&begin);
	pthread_barrier_wait(&end);
	say("step %d born %d sum %016lx", step, step * SPAWNERS * BATCH * BATCHES_PER_STEP, sums[0] ^ sums[1] ^ sums[2]);
}

static void verify(void)
{
	for (int i = 0; i < SPAWNERS; i++)
		pthread_join(spawners[i], NULL);
}
