/* Eight threads as a pipeline: mutexes, condition variables, thread-locals, floating point.
 *
 * Tokens travel through eight stages joined by bounded queues. A stage changes each token with a chaotic map
 * whose state lives in thread-local storage, so one lost, repeated or swapped step changes every later line. */
#include "victim.h"

enum { STAGES = 8, ROOM = 4, TOKENS_PER_STEP = 6, ROUNDS = 12000 };

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t filled, drained;
	double token[ROOM];
	int first, count;
};

static struct queue queues[STAGES + 1];
static pthread_t threads[STAGES];
static __thread double state;
static __thread uint64_t tokens_seen;
static uint64_t seen_by_stage[STAGES];

static void push(struct queue *queue, double token)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->count == ROOM)
		pthread_cond_wait(&queue->drained, &queue->lock);
	queue->token[(queue->first + queue->count++) % ROOM] = token;
	pthread_cond_signal(&queue->filled);
	pthread_mutex_unlock(&queue->lock);
}

static double pop(struct queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->count == 0)
		pthread_cond_wait(&queue->filled, &queue->lock);
	double token = queue->token[queue->first];
	queue->first = (queue->first + 1) % ROOM;
	queue->count--;
	pthread_cond_signal(&queue->drained);
	pthread_mutex_unlock(&queue->lock);
	return token;
}

static void *stage(void *argument)
{
	long number = (long)argument;
	state = 0.1 + 0.05 * (double)number;
	for (;;) {
		double token = pop(&queues[number]);
		if (token < 0) {
			push(&queues[number + 1], token);
			break;
		}
		for (int round = 0; round < ROUNDS; round++)
			state = 3.9 * state * (1.0 - state);
		tokens_seen++;
		push(&queues[number + 1], (token + state) / 2.0);
	}
	seen_by_stage[number] = tokens_seen;
	return NULL;
}

static void set_up(void)
{
	step_ms = 12;
	for (int i = 0; i <= STAGES; i++) {
		pthread_mutex_init(&queues[i].lock, NULL);
		pthread_cond_init(&queues[i].filled, NULL);
		pthread_cond_init(&queues[i].drained, NULL);
	}
	for (long i = 0; i < STAGES; i++)
		CHECK(pthread_create(&threads[i], NULL, stage, (void *)i) == 0);
}

static void hold(int step)
{
	double sum = 0;
	for (int i = 0; i < TOKENS_PER_STEP; i++)
		push(&queues[0], 0.5 + 0.01 * i);
	for (int i = 0; i < TOKENS_PER_STEP; i++)
		sum += pop(&queues[STAGES]);
	say("step %d sum %.17g", step, sum);
}

static void verify(void)
{
	push(&queues[0], -1);
	CHECK(pop(&queues[STAGES]) < 0);
	for (int i = 0; i < STAGES; i++) {
		pthread_join(threads[i], NULL);
		CHECK(seen_by_stage[i] == (uint64_t)steps * TOKENS_PER_STEP);
	}
}
