/* Says whom a preloaded program names to PR_SET_PTRACER: "names PID" for each call, also of its children. Started with the path of
 * libckpt.so, and with "yama" or "none" if the kernel is to look as if it had Yama or not; the program is this file again, which
 * sends itself the trigger signal, or forks. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 64 };

/* Which of them is in a call. */
static struct {
	pid_t pid;
	int inside;
} known[PROCESSES];

static void at_call(pid_t pid, const char *kernel)
{
	struct user_regs_struct registers;
	int place = 0;
	while (known[place].pid != 0 && known[place].pid != pid && place < PROCESSES - 1)
		place++;
	known[place].pid = pid;
	known[place].inside = !known[place].inside;
	if (ptrace(PTRACE_GETREGS, pid, 0, &registers) != 0 || registers.orig_rax != SYS_prctl || registers.rdi != PR_SET_PTRACER)
		return;
	if (known[place].inside)
		printf("names %ld\n", (long)registers.rsi);
	else if (kernel != NULL) {
		registers.rax = strcmp(kernel, "yama") == 0 ? 0 : (unsigned long)-EINVAL;
		ptrace(PTRACE_SETREGS, pid, 0, &registers);
	}
}

static int fork_twice(void)
{
	for (int generation = 0; generation < 2; generation++) {
		int status;
		pid_t child = fork();
		if (child != 0)
			return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return getenv("CKPT_TEST_FORKS") != NULL ? fork_twice() : raise(SIGUSR1);
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		setenv("LD_PRELOAD", argv[1], 1);
		execl("/proc/self/exe", "program", (char *)0);
		_exit(1);
	}
	int status, end = -1, forks = argc > 2 ? PTRACE_O_TRACEFORK : 0;
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | forks);
	ptrace(PTRACE_SYSCALL, pid, 0, 0);
	for (pid_t found; (found = waitpid(-1, &status, __WALL)) > 0;) {
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (found == pid)
				end = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
			continue;
		}
		int is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
		int is_ours = is_call || WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == SIGSTOP;
		if (is_call)
			at_call(found, argc > 2 ? argv[2] : NULL);
		ptrace(PTRACE_SYSCALL, found, 0, is_ours ? 0 : WSTOPSIG(status));
	}
	printf("ends %d\n", end);
	return 0;
}
