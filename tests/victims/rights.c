/* Rights that a process has given up, and what it has asked of the kernel about itself: capabilities, no_new_privs,
 * the parent-death signal, the dumpable flag, umask, nice value, and limits. */
#include "victim.h"
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { KEPT = 1 << CAP_KILL | 1 << CAP_CHOWN, EFFECTIVE = 1 << CAP_KILL, NICE = 3, FILES = 321 };

static void set_up(void)
{
	struct rlimit files = { FILES, FILES };
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	CHECK(prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0) == 0);
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2] = { { EFFECTIVE, KEPT, 0 }, { 0, 0, 0 } };
	CHECK(syscall(SYS_capset, &header, sets) == 0);
	CHECK(prctl(PR_SET_PDEATHSIG, SIGWINCH, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(setpriority(PRIO_PROCESS, 0, NICE) == 0);
	umask(035);
}

static void hold(int step)
{
	char status[8192], shown[512] = "";
	int file = open("/proc/self/status", O_RDONLY), death_signal = 0;
	ssize_t bytes = read(file, status, sizeof status - 1);
	CHECK(bytes > 0);
	close(file);
	status[bytes] = 0;
	for (char *line = strtok(status, "\n"); line != NULL; line = strtok(NULL, "\n"))
		if (strncmp(line, "Cap", 3) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 || strncmp(line, "Umask", 5) == 0)
			strcat(strcat(shown, " "), strchr(line, '\t') + 1);
	CHECK(prctl(PR_GET_PDEATHSIG, &death_signal, 0, 0, 0) == 0 && death_signal == SIGWINCH);
	CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
	CHECK(getpriority(PRIO_PROCESS, 0) == NICE);
	struct rlimit files;
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur == FILES && files.rlim_max == FILES);
	say("step %d%s", step, shown);
}

static void verify(void)
{
	CHECK(syscall(SYS_capget, &(struct __user_cap_header_struct){ _LINUX_CAPABILITY_VERSION_3, 0 },
		      (struct __user_cap_data_struct[2]){ 0 }) == 0);
}
