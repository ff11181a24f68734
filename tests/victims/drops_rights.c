/* A daemon that root starts and that becomes an ordinary user, as most do: the kernel makes it not dumpable, so that its own user may not look
 * into it. */
#include "victim.h"
#include <grp.h>
#include <sys/prctl.h>

enum { USER = 65534 };

static int dumpable;

static void set_up(void)
{
	CHECK(setgroups(0, NULL) == 0 && setgid(USER) == 0 && setuid(USER) == 0);
	dumpable = prctl(PR_GET_DUMPABLE);
	CHECK(dumpable != 1);
}

static void hold(int step)
{
	CHECK(getuid() == USER && geteuid() == USER && getgid() == USER && getgroups(0, NULL) == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == dumpable && setuid(0) == -1);
	say("step %d", step);
}

static void verify(void)
{
}
