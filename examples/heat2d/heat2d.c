/* The heat equation on a plate: threads relax bands of a grid, and the largest change is printed now and then.
 *
 * usage: heat2d [ITERATIONS [SIZE [THREADS]]] */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINES = 80, THREADS_MAX = 64 };

static int iterations = 2000, size = 768, threads = 4;
static double *now, *next, *conductivity;
static double change_of[THREADS_MAX];
static pthread_barrier_t all_done;

/* The same plate in every run: each point conducts heat a little differently. */
static void prepare(void)
{
	uint64_t state = 42;
	for (int i = 0; i < size * size; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		conductivity[i] = 0.20 + 0.05 * (double)(state >> 40) / (double)(1 << 24);
	}
	for (int i = 0; i < size; i++)
		now[i] = next[i] = 100.0;
}

static double relax(int from, int to)
{
	double largest = 0;
	for (int row = from; row < to; row++)
		for (int i = row * size + 1; i < row * size + size - 1; i++) {
			double around = now[i - 1] + now[i + 1] + now[i - size] + now[i + size];
			double change = conductivity[i] * (around - 4.0 * now[i]);
			next[i] = now[i] + change;
			largest = fmax(largest, fabs(change));
		}
	return largest;
}

static double largest_change(void)
{
	double largest = 0;
	for (int i = 0; i < threads; i++)
		largest = fmax(largest, change_of[i]);
	return largest;
}

static void *work(void *argument)
{
	int number = (int)(intptr_t)argument, rows = size - 2;
	int from = 1 + rows * number / threads, to = 1 + rows * (number + 1) / threads;
	int every = iterations / LINES > 0 ? iterations / LINES : 1;
	for (int iteration = 1; iteration <= iterations; iteration++) {
		change_of[number] = relax(from, to);
		if (pthread_barrier_wait(&all_done) == PTHREAD_BARRIER_SERIAL_THREAD) {
			double *swapped = now;
			now = next;
			next = swapped;
			if (iteration % every == 0) {
				printf("iteration %5d of %d   largest change %.12f\n", iteration, iterations,
				       largest_change());
				fflush(stdout);
			}
		}
		pthread_barrier_wait(&all_done);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		iterations = atoi(argv[1]);
	if (argc > 2)
		size = atoi(argv[2]);
	if (argc > 3)
		threads = atoi(argv[3]);
	if (iterations < 1 || size < 3 || threads < 1 || threads > THREADS_MAX) {
		fprintf(stderr, "usage: heat2d [ITERATIONS [SIZE [THREADS]]]\n");
		return 2;
	}
	now = calloc((size_t)size * size, sizeof *now);
	next = calloc((size_t)size * size, sizeof *next);
	conductivity = calloc((size_t)size * size, sizeof *conductivity);
	if (now == NULL || next == NULL || conductivity == NULL) {
		fprintf(stderr, "heat2d: not enough memory for a plate of %d x %d\n", size, size);
		return 1;
	}
	prepare();
	pthread_barrier_init(&all_done, NULL, (unsigned)threads);
	pthread_t others[THREADS_MAX];
	for (intptr_t i = 1; i < threads; i++)
		if (pthread_create(&others[i], NULL, work, (void *)i) != 0) {
			fprintf(stderr, "heat2d: cannot create a thread\n");
			return 1;
		}
	work((void *)0);
	for (int i = 1; i < threads; i++)
		pthread_join(others[i], NULL);
	double heat = 0;
	for (int i = 0; i < size * size; i++)
		heat += now[i];
	printf("total heat %.9f\n", heat);
	return 0;
}
