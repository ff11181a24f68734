/* What a program can see of itself: descriptors, threads, mappings, signals, children, errno. Printed at each
 * step, so that runs with and without libckpt, before and after a checkpoint, can be compared. */
#include "victim.h"
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t children_ended;
static int errno_at_start;

__attribute__((constructor)) static void note_errno(void)
{
	errno_at_start = errno;
}

static void on_child(int signal)
{
	(void)signal;
	children_ended++;
}

static void list(const char *path)
{
	char line[900] = "";
	int count = 0;
	DIR *directory = opendir(path);
	CHECK(directory != NULL);
	for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(directory))
			continue;
		count++;
		if (strcmp(path, "/proc/self/fd") == 0) {
			strcat(line, " ");
			strcat(line, entry->d_name);
		}
	}
	closedir(directory);
	say("%s: %d%s", path, count, line);
}

static void list_mappings(void)
{
	char line[1024];
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof line, maps)) {
		char *path = strchr(line, '/');
		if (path != NULL && strstr(path, "libckpt.so") == NULL) {
			path[strcspn(path, "\n")] = 0;
			say("mapping %.4s %s", strchr(line, ' ') + 1, path);
		}
	}
	fclose(maps);
}

static void list_status(void)
{
	static const char *const fields[] = { "Threads", "SigQ", "SigBlk", "SigIgn", "ShdPnd", "NoNewPrivs",
					      "Seccomp", "TracerPid", "Groups", "CapEff" };
	char line[512];
	FILE *status = fopen("/proc/self/status", "re");
	CHECK(status != NULL);
	while (fgets(line, sizeof line, status))
		for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
			if (strncmp(line, fields[i], strlen(fields[i])) == 0 && line[strlen(fields[i])] == ':') {
				line[strcspn(line, "\n")] = 0;
				/* The number of queued signals is the user's, not the process's. */
				if (strcmp(fields[i], "SigQ") != 0)
					say("%s", line);
			}
	fclose(status);
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
	say("errno at start %d", errno_at_start);
}

static void hold(int step)
{
	say("step %d", step);
	list("/proc/self/fd");
	list("/proc/self/task");
	list_mappings();
	list_status();
	errno = 0;
	int waited = waitpid(-1, NULL, WNOHANG);
	say("waitpid(-1) %d errno %d, SIGCHLD %d", waited, errno, (int)children_ended);
}

static void verify(void)
{
	/* Children of its own still work and are the only ones. */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execlp("sh", "sh", "-c", "exit 5", (char *)NULL);
		_exit(127);
	}
	int status = 0;
	CHECK(waitpid(-1, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD && children_ended == 1);
}
