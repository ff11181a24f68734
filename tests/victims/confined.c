/* Executes a program under a seccomp filter, as a container does: confined CALL=ERRNO|CALL=kill... -- CMD ARGS
 *
 * Each of these calls fails with that error, or ends the process that makes it. All others are made. "clone-namespaces" is a
 * clone with a flag that makes a namespace. Without privilege no_new_privs comes with it. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RULES_MAX = 64, INSTRUCTIONS_PER_RULE = 5 };

static const char clone_namespaces[] = "clone-namespaces";

static const struct {
	const char *name;
	int number;
} calls[] = {
	{ "arch_prctl", SYS_arch_prctl },
	{ "bpf", SYS_bpf },
	{ "clone", SYS_clone },
	{ clone_namespaces, SYS_clone },
	{ "clone3", SYS_clone3 },
	{ "close_range", SYS_close_range },
	{ "io_uring_setup", SYS_io_uring_setup },
	{ "kcmp", SYS_kcmp },
	{ "keyctl", SYS_keyctl },
	{ "membarrier", SYS_membarrier },
	{ "mount", SYS_mount },
	{ "perf_event_open", SYS_perf_event_open },
	{ "personality", SYS_personality },
	{ "pidfd_getfd", SYS_pidfd_getfd },
	{ "pidfd_open", SYS_pidfd_open },
	{ "pidfd_send_signal", SYS_pidfd_send_signal },
	{ "process_madvise", SYS_process_madvise },
	{ "process_vm_readv", SYS_process_vm_readv },
	{ "process_vm_writev", SYS_process_vm_writev },
	{ "ptrace", SYS_ptrace },
	{ "rseq", SYS_rseq },
	{ "setns", SYS_setns },
	{ "unshare", SYS_unshare },
	{ "userfaultfd", SYS_userfaultfd },
};

static const struct {
	const char *name;
	unsigned action;
} actions[] = {
	{ "EACCES", SECCOMP_RET_ERRNO | EACCES },
	{ "EINVAL", SECCOMP_RET_ERRNO | EINVAL },
	{ "ENOSYS", SECCOMP_RET_ERRNO | ENOSYS },
	{ "EPERM", SECCOMP_RET_ERRNO | EPERM },
	{ "kill", SECCOMP_RET_KILL_PROCESS },
};

static struct sock_filter filter[4 + RULES_MAX * INSTRUCTIONS_PER_RULE + 1];
static unsigned short length;

static void add(struct sock_filter instruction)
{
	filter[length++] = instruction;
}

static void load(size_t offset)
{
	add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
}

static void answer(unsigned action)
{
	add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Passes by so many instructions if what was loaded is another. */
static void unless_equal(unsigned value, unsigned char passed)
{
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, passed));
}

static void add_rule(const char *name, int number, unsigned action)
{
	const unsigned namespaces =
		CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;
	if (name != clone_namespaces) {
		unless_equal((unsigned)number, 1);
		answer(action);
		return;
	}
	unless_equal((unsigned)number, 4);
	load(offsetof(struct seccomp_data, args[0]));
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, namespaces, 0, 1));
	answer(action);
	load(offsetof(struct seccomp_data, nr));
}

static void wrong(const char *what, const char *which)
{
	fprintf(stderr, "confined: %s: %s\n", which, what);
	exit(2);
}

static void add_argument(const char *argument)
{
	const char *equals = strchr(argument, '=');
	if (equals == NULL)
		wrong("expected CALL=ERRNO or CALL=kill", argument);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		size_t bytes = (size_t)(equals - argument);
		if (strlen(calls[i].name) != bytes || memcmp(calls[i].name, argument, bytes) != 0)
			continue;
		for (size_t j = 0; j < sizeof actions / sizeof *actions; j++) {
			if (strcmp(actions[j].name, equals + 1) == 0) {
				add_rule(calls[i].name, calls[i].number, actions[j].action);
				return;
			}
		}
		wrong("unknown answer", argument);
	}
	wrong("unknown call", argument);
}

int main(int count, char **arguments)
{
	struct sock_fprog program = { .filter = filter };
	int at = 1;
	load(offsetof(struct seccomp_data, arch));
	add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	answer(SECCOMP_RET_ALLOW);
	load(offsetof(struct seccomp_data, nr));
	for (; at < count && strcmp(arguments[at], "--") != 0; at++) {
		if (at > RULES_MAX)
			wrong("too many", arguments[at]);
		add_argument(arguments[at]);
	}
	answer(SECCOMP_RET_ALLOW);
	if (at + 1 >= count)
		wrong("expected CALL=ERRNO... -- CMD ARGS", arguments[0]);
	program.len = length;
	/* Who has CAP_SYS_ADMIN needs no no_new_privs. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
			wrong(strerror(errno), "seccomp");
	}
	execvp(arguments[at + 1], arguments + at + 1);
	wrong(strerror(errno), arguments[at + 1]);
}
