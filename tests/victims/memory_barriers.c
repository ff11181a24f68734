/* Registered for commands of membarrier(2), as liburcu, .NET and tcmalloc are from their start; used again at each step. */
#include "victim.h"
#include <linux/membarrier.h>
#include <sys/syscall.h>

enum { COMMANDS = 4, GET_REGISTRATIONS = 512 };

static const int commands[COMMANDS][2] = {
	{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED },
	{ MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, MEMBARRIER_CMD_GLOBAL_EXPEDITED },
	{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE },
	{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ },
};
static int works[COMMANDS];
static long registered;

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

static void set_up(void)
{
	for (int number = 0; number < COMMANDS; number++)
		works[number] = membarrier(commands[number][0]) == 0 && membarrier(commands[number][1]) == 0;
	registered = membarrier(GET_REGISTRATIONS);
	if (registered < 0) {
		say("the kernel does not tell what is registered");
		_exit(EXIT_SKIPPED);
	}
}

static void hold(int step)
{
	for (int number = 0; number < COMMANDS; number++)
		CHECK(!works[number] || membarrier(commands[number][1]) == 0);
	CHECK(membarrier(GET_REGISTRATIONS) == registered);
	say("step %d", step);
}

static void verify(void)
{
}
