/* Says whom a preloaded program names to PR_SET_PTRACER: "names PID" for each call. Started with the path of libckpt.so; the
 * program is this file again, which sends itself the trigger signal. */
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

static void say_call(pid_t pid)
{
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0 && registers.orig_rax == SYS_prctl &&
	    registers.rdi == PR_SET_PTRACER)
		printf("names %ld\n", (long)registers.rsi);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return raise(SIGUSR1);
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		setenv("LD_PRELOAD", argv[1], 1);
		execl("/proc/self/exe", "program", (char *)0);
		_exit(1);
	}
	int status, enters = 1, signal = 0;
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (;;) {
		ptrace(PTRACE_SYSCALL, pid, 0, signal);
		if (waitpid(pid, &status, 0) != pid || WIFEXITED(status) || WIFSIGNALED(status))
			break;
		int is_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
		signal = is_call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		if (is_call && enters)
			say_call(pid);
		if (is_call)
			enters = !enters;
	}
	printf("ends %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return 0;
}
