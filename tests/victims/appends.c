/* Appends a line to the file "log" at each step, as many programs may. */
#include "victim.h"

static int log_file;

static void set_up(void)
{
	log_file = open("log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	CHECK(log_file >= 0);
}

static void hold(int step)
{
	CHECK(dprintf(log_file, "step %d\n", step) > 0);
	say("step %d", step);
}

static void verify(void)
{
}
