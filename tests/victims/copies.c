/* Says in each step which copy of a checkpoint it is, and in every tenth step what a program that it executes is told. */
#include "victim.h"

const char *ckpt_copy_id(void) __attribute__((weak));
unsigned long ckpt_generation(void) __attribute__((weak));

static const char *first;

static void set_up(void)
{
	first = ckpt_copy_id ? ckpt_copy_id() : NULL;
	CHECK(first == NULL);
}

static void hold(int step)
{
	const char *copy = ckpt_copy_id ? ckpt_copy_id() : NULL;
	unsigned long generation = ckpt_generation ? ckpt_generation() : 0;
	say("step %d copy %s generation %lu pid %d", step, copy ? copy : "-", generation, (int)getpid());
	if (step % 10 == 0)
		CHECK(system("echo child copy \"${CKPT_COPY--}\" store \"${CKPT_DIR--}\" mark \"${CKPT_MARK%%-*}\"") == 0);
}

static void verify(void)
{
}
