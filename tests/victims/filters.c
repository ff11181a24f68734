/* Seccomp filters that a program adds itself: for all of its threads, for one of them, in a child. KIND:
 * "dropped": without no_new_privs, by rights that it has then given up; "narrow": every call is deadly but for those of its steps. */
#include "victim.h"
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { WORKERS = 2, FORBIDDEN_TO_ALL = 150, FORBIDDEN_TO_ONE, FORBIDDEN_TO_CHILD, FORBIDDEN_LATE };

/* A worker looks at its filters when it is asked to. */
static struct worker {
	pthread_t thread;
	sem_t asked, answered;
	int number, count, ends;
	long of_all, of_one, late;
} workers[WORKERS];

static pid_t child;
static int to_child, from_child;

static long add(struct sock_filter *instructions, unsigned short count, unsigned flags)
{
	struct sock_fprog program = { .len = count, .filter = instructions };
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

/* Has the call fail with this error. */
static long forbid(unsigned call, unsigned error, unsigned flags)
{
	struct sock_filter instructions[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	return add(instructions, sizeof instructions / sizeof *instructions, flags);
}

static long error_of(long call)
{
	errno = 0;
	return syscall(call, 0) == -1 ? errno : 0;
}

/* How many filters the calling thread is under. */
static int count_filters(void)
{
	char path[64], line[128];
	int count = -1;
	snprintf(path, sizeof path, "/proc/self/task/%ld/status", syscall(SYS_gettid));
	FILE *status = fopen(path, "r");
	CHECK(status != NULL);
	while (fgets(line, sizeof line, status) != NULL)
		if (sscanf(line, "Seccomp_filters: %d", &count) == 1)
			break;
	fclose(status);
	return count;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	if (worker->number == 1)
		CHECK(forbid(SYS_getpgid, FORBIDDEN_TO_ONE, 0) == 0);
	while (!worker->ends) {
		worker->of_all = error_of(SYS_getppid);
		worker->of_one = error_of(SYS_getpgid);
		worker->late = error_of(SYS_getsid);
		worker->count = count_filters();
		sem_post(&worker->answered);
		sem_wait(&worker->asked);
	}
	return NULL;
}

static void ask(struct worker *worker)
{
	sem_post(&worker->asked);
	sem_wait(&worker->answered);
}

/* The child answers each byte with the error that one of its calls meets, and how many filters it is under. */
static void live_as_child(int asked, int answers)
{
	char byte;
	CHECK(forbid(SYS_getpriority, FORBIDDEN_TO_CHILD, 0) == 0);
	while (read(asked, &byte, 1) == 1) {
		long answer[3] = { error_of(SYS_getppid), error_of(SYS_getpriority), count_filters() };
		CHECK(write(answers, answer, sizeof answer) == sizeof answer);
	}
	_exit(0);
}

static int began_under;

static void drop_rights(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };
	CHECK(syscall(SYS_capset, &header, none) == 0);
}

/* Ends the program at any call but these. */
static void forbid_all_else(void)
{
	static const unsigned short allowed[] = { SYS_write, SYS_nanosleep, SYS_clock_nanosleep, SYS_access, SYS_faccessat,
						  SYS_faccessat2, SYS_restart_syscall, SYS_rt_sigreturn, SYS_exit_group };
	enum { ALLOWED = sizeof allowed / sizeof *allowed };
	struct sock_filter instructions[ALLOWED + 3] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	for (unsigned char at = 0; at < ALLOWED; at++)
		instructions[1 + at] =
			(struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], ALLOWED - at, 0);
	instructions[ALLOWED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	instructions[ALLOWED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(add(instructions, ALLOWED + 3, SECCOMP_FILTER_FLAG_LOG) == 0);
}

static void set_up(void)
{
	int asked[2], answers[2];
	if (geteuid() != 0) {
		say("an ordinary user's filters are refused");
		_exit(EXIT_SKIPPED);
	}
	began_under = count_filters();
	if (strcmp(kind, "narrow") == 0)
		return forbid_all_else();
	for (int number = 0; number < WORKERS; number++) {
		struct worker *worker = &workers[number];
		worker->number = number;
		CHECK(sem_init(&worker->asked, 0, 0) == 0 && sem_init(&worker->answered, 0, 0) == 0);
		CHECK(pthread_create(&worker->thread, NULL, work, worker) == 0);
		sem_wait(&worker->answered);
		/* Only where nobody has a filter of its own yet may all be given one. */
		if (number == 0) {
			if (strcmp(kind, "dropped") != 0)
				CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
			CHECK(forbid(SYS_getppid, FORBIDDEN_TO_ALL, SECCOMP_FILTER_FLAG_TSYNC) == 0);
		}
	}
	CHECK(pipe(asked) == 0 && pipe(answers) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(asked[1]);
		close(answers[0]);
		live_as_child(asked[0], answers[1]);
	}
	close(asked[0]);
	close(answers[1]);
	to_child = asked[1];
	from_child = answers[0];
	if (strcmp(kind, "dropped") == 0)
		drop_rights();
}

static void hold(int step)
{
	if (strcmp(kind, "narrow") != 0) {
		long answer[3];
		CHECK(error_of(SYS_getppid) == FORBIDDEN_TO_ALL && error_of(SYS_getpgid) == 0);
		CHECK(count_filters() == began_under + 1);
		for (int number = 0; number < WORKERS; number++) {
			struct worker *worker = &workers[number];
			ask(worker);
			CHECK(worker->of_all == FORBIDDEN_TO_ALL && worker->late == 0);
			CHECK(worker->of_one == (number == 1 ? FORBIDDEN_TO_ONE : 0));
			CHECK(worker->count == began_under + (number == 1 ? 2 : 1));
		}
		CHECK(write(to_child, "", 1) == 1);
		CHECK(read(from_child, answer, sizeof answer) == sizeof answer);
		CHECK(answer[0] == FORBIDDEN_TO_ALL && answer[1] == FORBIDDEN_TO_CHILD && answer[2] == began_under + 2);
		CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == (strcmp(kind, "dropped") != 0));
	}
	say("step %d", step);
}

static void verify(void)
{
	if (strcmp(kind, "narrow") == 0)
		return;
	/* Without rights and without no_new_privs nothing more can be added. */
	if (strcmp(kind, "dropped") == 0) {
		CHECK(forbid(SYS_getsid, FORBIDDEN_LATE, 0) == -1 && errno == EACCES);
	} else {
		/* The one with a filter of its own does not take another's; without it all do, for what they have is one and the same. */
		CHECK(forbid(SYS_getsid, FORBIDDEN_LATE, SECCOMP_FILTER_FLAG_TSYNC) > 0);
		workers[1].ends = 1;
		sem_post(&workers[1].asked);
		CHECK(pthread_join(workers[1].thread, NULL) == 0);
		CHECK(forbid(SYS_getsid, FORBIDDEN_LATE, SECCOMP_FILTER_FLAG_TSYNC) == 0);
		ask(&workers[0]);
		CHECK(workers[0].late == FORBIDDEN_LATE);
	}
	close(to_child);
	CHECK(waitpid(child, NULL, 0) == child);
}
