/* A stencil over numbers that are divided among ranks of MPI: each tells its neighbours of its borders, and the sum is exact. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OWN = 20000, MODULUS = 1000003 };

/* As in victim.h: where a test wants the program to wait, and for which file. */
static void wait_at(int step)
{
	const char *place = getenv("CKPT_VICTIM_WAITS_AT"), *sign = getenv("CKPT_VICTIM_WAITS_FOR");
	while (place != NULL && sign != NULL && atoi(place) == step && access(sign, F_OK) != 0)
		usleep(1000);
}

static void tell_neighbours(long *all, int rank, int ranks)
{
	int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
	MPI_Sendrecv(&all[1], 1, MPI_LONG, left, 0, &all[OWN + 1], 1, MPI_LONG, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Sendrecv(&all[OWN], 1, MPI_LONG, right, 1, &all[0], 1, MPI_LONG, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static long sum_of_all(const long *own)
{
	long sum = 0, all = 0;
	for (int i = 1; i <= OWN; i++)
		sum = (sum * 31 + own[i]) % MODULUS;
	MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

int main(int argc, char **argv)
{
	int rank, ranks, steps = argc > 1 ? atoi(argv[1]) : 100;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	long *now = calloc(OWN + 2, sizeof *now), *next = calloc(OWN + 2, sizeof *next);
	for (int i = 1; i <= OWN; i++)
		now[i] = ((long)rank * OWN + i) * 7919 % MODULUS;
	for (int step = 1; step <= steps; step++) {
		for (int round = 0; round < 5; round++) {
			tell_neighbours(now, rank, ranks);
			for (int i = 1; i <= OWN; i++)
				next[i] = (now[i - 1] + 2 * now[i] + now[i + 1] + step) % MODULUS;
			long *other = now;
			now = next;
			next = other;
		}
		long sum = sum_of_all(now);
		if (rank == 0) {
			printf("step %d of %d ranks: %ld\n", step, ranks, sum);
			fflush(stdout);
			wait_at(step);
		}
		usleep(5000);
	}
	MPI_Finalize();
	return 0;
}
