/* Live vector and mask registers: loaded, held through a spin that touches none of them, stored and compared.
 *
 * The loops are whole functions in assembly, so no compiler spills a register to memory in between. Without
 * AVX-512 the 16 ymm registers are held instead. Three threads hold different values. */
#include "victim.h"

enum { ZMM_BYTES = 32 * 64, MASK_BYTES = 8 * 8, THREADS = 3, SPINS = 8000000 };

void hold_avx512(const void *in, void *out, long spins);
void hold_avx2(const void *in, void *out, long spins);

__asm__(".text\n"
	".globl hold_avx512\n"
	"hold_avx512:\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
	"  vmovdqu64 \\n*64(%rdi), %zmm\\n\n"
	".endr\n"
	".irp n,0,1,2,3,4,5,6,7\n"
	"  kmovq 2048+\\n*8(%rdi), %k\\n\n"
	".endr\n"
	"1: dec %rdx\n"
	"  jnz 1b\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
	"  vmovdqu64 %zmm\\n, \\n*64(%rsi)\n"
	".endr\n"
	".irp n,0,1,2,3,4,5,6,7\n"
	"  kmovq %k\\n, 2048+\\n*8(%rsi)\n"
	".endr\n"
	"  vzeroupper\n"
	"  ret\n"
	".globl hold_avx2\n"
	"hold_avx2:\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"  vmovdqu \\n*32(%rdi), %ymm\\n\n"
	".endr\n"
	"1: dec %rdx\n"
	"  jnz 1b\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"  vmovdqu %ymm\\n, \\n*32(%rsi)\n"
	".endr\n"
	"  vzeroupper\n"
	"  ret\n");

static int wide;
static pthread_barrier_t begin, end;

static void hold_and_compare(uint64_t seed)
{
	uint64_t in[(ZMM_BYTES + MASK_BYTES) / 8], out[(ZMM_BYTES + MASK_BYTES) / 8];
	size_t bytes = wide ? sizeof in : 16 * 32;
	for (size_t i = 0; i < sizeof in / 8; i++)
		in[i] = mix(seed * 1000 + i);
	memset(out, 0, sizeof out);
	if (wide)
		hold_avx512(in, out, SPINS);
	else
		hold_avx2(in, out, SPINS);
	for (size_t i = 0; i < bytes / 8; i++)
		if (in[i] != out[i])
			FAIL("register word %zu is %016lx, was %016lx", i, out[i], in[i]);
}

static void *holder(void *argument)
{
	for (int step = 1; step <= steps; step++) {
		pthread_barrier_wait(&begin);
		hold_and_compare((uint64_t)step * 10 + (uint64_t)(long)argument);
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static pthread_t threads[THREADS];

static void set_up(void)
{
	step_ms = 0;
	wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
	if (!wide && !__builtin_cpu_supports("avx2")) {
		say("skipped: this processor has neither AVX-512 nor AVX2");
		_exit(EXIT_SKIPPED);
	}
	pthread_barrier_init(&begin, NULL, THREADS + 1);
	pthread_barrier_init(&end, NULL, THREADS + 1);
	for (long i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, holder, (void *)(i + 1)) == 0);
}

static void hold(int step)
{
	pthread_barrier_wait(&begin);
	hold_and_compare((uint64_t)step * 10);
	pthread_barrier_wait(&end);
	say("step %d: %s held", step, wide ? "zmm0-31 and k0-7" : "ymm0-15");
}

static void verify(void)
{
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
