/* Says which agent a program finds in its environment that is executed now. */
#include "victim.h"

static void set_up(void)
{
	step_ms = 30;
}

static void hold(int step)
{
	(void)step;
	CHECK(system("env | sed -n 's/^CKPT_AGENT_PID=/agent /p'") == 0);
}

static void verify(void)
{
}
