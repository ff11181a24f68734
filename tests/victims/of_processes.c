/* What /proc has of processes, open: of the program itself, of its children that live and have ended, and, where KIND is its
 * number, of another program, which may end. */
#include "victim.h"
#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int own, listing, threads, name, memory, mounts, watching, of_child, in_child, of_ended, of_reaped, of_another;
static volatile int in_memory = 1;
static pid_t child, ended, another;

static int open_of(pid_t pid, const char *file, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	int number = open(path, flags | O_CLOEXEC);
	CHECK(number >= 0);
	return number;
}

/* Whether it is read from its begin on as the line of process `pid` in `state`; 0 for any. */
static void is_stat_of(int number, pid_t pid, char state)
{
	char text[512];
	int found = 0;
	ssize_t bytes = pread(number, text, sizeof text - 1, 0);
	CHECK(bytes > 0);
	text[bytes] = '\0';
	CHECK(sscanf(text, "%d", &found) == 1 && found == pid);
	CHECK(state == 0 || strrchr(text, ')')[2] == state);
}

static void be_child(int named, int until)
{
	char end;
	CHECK(prctl(PR_SET_NAME, "of_the_child") == 0 && close(named) == 0);
	CHECK(read(until, &end, 1) == 0);
	_exit(0);
}

static void set_up(void)
{
	static char begin[1000];
	int life[2], name_given[2];
	char end;
	siginfo_t info;
	own = open("/proc/self/stat", O_RDONLY);
	threads = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
	name = open("/proc/self/comm", O_WRONLY);
	memory = open("/proc/self/mem", O_RDWR);
	mounts = open("/proc/self/mounts", O_RDONLY);
	CHECK(own >= 0 && threads >= 0 && name >= 0 && memory >= 0 && mounts >= 0);
	CHECK(pipe(life) == 0 && pipe(name_given) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(close(life[1]) == 0 && close(name_given[0]) == 0);
		be_child(name_given[1], life[0]);
	}
	CHECK(close(life[0]) == 0 && close(name_given[1]) == 0);
	CHECK(read(name_given[0], &end, 1) == 0 && close(name_given[0]) == 0);
	of_child = open_of(child, "stat", O_RDONLY);
	in_child = open_of(child, "", O_PATH | O_DIRECTORY);
	ended = fork();
	if (ended == 0)
		_exit(3);
	CHECK(waitid(P_PID, (id_t)ended, &info, WEXITED | WNOWAIT) == 0);
	of_ended = open_of(ended, "stat", O_RDONLY);
	pid_t reaped = fork();
	if (reaped == 0)
		_exit(0);
	of_reaped = open_of(reaped, "stat", O_RDONLY);
	CHECK(waitpid(reaped, NULL, 0) == reaped);
	if (kind[0] != '\0')
		of_another = open_of(another = atoi(kind), "stat", O_RDONLY);
	watching = epoll_create1(0);
	struct epoll_event changed = { .events = EPOLLPRI };
	CHECK(watching >= 0 && epoll_ctl(watching, EPOLL_CTL_ADD, mounts, &changed) == 0);
	/* Its rest is read at the end. */
	listing = open("/proc/self/smaps", O_RDONLY);
	CHECK(listing >= 0 && read(listing, begin, sizeof begin) == sizeof begin);
}

static void hold(int step)
{
	char word[64] = "";
	struct epoll_event event;
	int value = step, found = 0;
	is_stat_of(own, getpid(), 'R');
	is_stat_of(of_child, child, 0);
	is_stat_of(of_ended, ended, 'Z');
	CHECK(pread(of_reaped, word, sizeof word, 0) == -1 && errno == ESRCH);
	int comm = openat(in_child, "comm", O_RDONLY);
	CHECK(comm >= 0 && read(comm, word, sizeof word - 1) > 0 && strcmp(word, "of_the_child\n") == 0 && close(comm) == 0);
	CHECK(pwrite(memory, &value, sizeof value, (off_t)(intptr_t)&in_memory) == sizeof value && in_memory == step);
	CHECK(pread(memory, &found, sizeof found, (off_t)(intptr_t)&in_memory) == sizeof found && found == step);
	CHECK(epoll_wait(watching, &event, 1, 0) == 0);
	int is_gone = another != 0 && pread(of_another, word, sizeof word, 0) == -1 && errno == ESRCH;
	if (another != 0 && !is_gone)
		is_stat_of(of_another, another, 0);
	say("step %d%s", step, is_gone ? ": the other program is gone" : "");
}

static void verify(void)
{
	static char rest[1 << 20];
	char word[16];
	size_t length = 0;
	for (ssize_t bytes; (bytes = read(listing, rest + length, sizeof rest - 1 - length)) > 0; length += (size_t)bytes)
		;
	rest[length] = '\0';
	CHECK(strstr(rest, "[stack]") != NULL && strstr(rest, "VmFlags: rd ex") != NULL && rest[length - 1] == '\n');
	DIR *tasks = fdopendir(threads);
	CHECK(tasks != NULL && strcmp(readdir(tasks)->d_name, ".") == 0 && strcmp(readdir(tasks)->d_name, "..") == 0);
	CHECK(atoi(readdir(tasks)->d_name) == getpid() && readdir(tasks) == NULL);
	CHECK(write(name, "renamed", 7) == 7 && prctl(PR_GET_NAME, word) == 0 && strcmp(word, "renamed") == 0);
	CHECK(waitpid(ended, NULL, 0) == ended && pread(of_ended, word, 1, 0) == -1 && errno == ESRCH);
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	CHECK(pread(of_child, word, 1, 0) == -1 && errno == ESRCH && openat(in_child, "comm", O_RDONLY) == -1);
}
