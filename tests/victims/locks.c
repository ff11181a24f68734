/* Locks on files: of the process, of open file descriptions, of whole files. KIND "waits": for a lock that a test holds. */
#include "victim.h"
#include <sys/file.h>
#include <sys/wait.h>

static int ranges, described, described_dup, whole, shared, directory;

static int open_checked(const char *path, int flags)
{
	int file = open(path, flags, 0640);
	if (file < 0)
		FAIL("open %s: %d", path, errno);
	return file;
}

static int lock(int file, int command, short type, off_t start, off_t bytes)
{
	struct flock range = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes };
	return fcntl(file, command, &range);
}

static void *wait_for_the_lock(void *nothing)
{
	int waited = open_checked("waited", O_RDWR | O_CREAT);
	CHECK(lock(waited, F_SETLKW, F_WRLCK, 0, 0) == 0);
	return nothing;
}

static pthread_t waiter;

static void set_up(void)
{
	/* The lower number is of the same file, and no lock can be set through it. */
	ranges = open_checked("ranges", O_RDWR | O_CREAT);
	CHECK(dup2(ranges, 90) == 90 && close(ranges) == 0);
	ranges = 90;
	open_checked("ranges", O_RDONLY);
	CHECK(lock(ranges, F_SETLK, F_WRLCK, 10, 10) == 0 && lock(ranges, F_SETLK, F_RDLCK, 100, 0) == 0);
	CHECK(lock(ranges, F_SETLK, F_WRLCK, (off_t)1 << 40, 1) == 0);
	described = open_checked("described", O_RDWR | O_CREAT);
	described_dup = dup(described);
	CHECK(lock(described, F_OFD_SETLK, F_WRLCK, 5, 1) == 0);
	whole = open_checked("whole", O_RDONLY | O_CREAT);
	CHECK(flock(whole, LOCK_EX) == 0);
	shared = open_checked("shared", O_WRONLY | O_CREAT);
	CHECK(flock(shared, LOCK_SH) == 0);
	directory = open_checked(".", O_RDONLY | O_DIRECTORY);
	CHECK(flock(directory, LOCK_EX) == 0);
	if (strcmp(kind, "waits") == 0)
		CHECK(pthread_create(&waiter, NULL, wait_for_the_lock, NULL) == 0);
}

/* What the kernel shows, without the numbers that differ from life to life. */
static void hold(int step)
{
	int files[] = { ranges, described, described_dup, whole, shared, directory };
	char shown[700] = "";
	for (size_t index = 0; index < sizeof files / sizeof *files; index++) {
		char path[64], text[4096];
		snprintf(path, sizeof path, "/proc/self/fdinfo/%d", files[index]);
		int file = open_checked(path, O_RDONLY);
		ssize_t bytes = read(file, text, sizeof text - 1);
		CHECK(bytes > 0 && close(file) == 0);
		text[bytes] = 0;
		strcat(shown, " /");
		for (char *line = strstr(text, "lock:"); line != NULL; line = strstr(line + 1, "lock:")) {
			char owner[16], type[16], start[32], end[32];
			CHECK(sscanf(line, "lock: %*s %15s %*s %15s %*s %*s %31s %31s", owner, type, start, end) == 4);
			snprintf(shown + strlen(shown), 100, " %s %s %s-%s", owner, type, start, end);
		}
	}
	say("step %d%s", step, shown);
}

/* Another process finds everything locked, and what is beside it not. */
static void be_another_process(void)
{
	int file = open_checked("ranges", O_RDWR);
	CHECK(lock(file, F_SETLK, F_RDLCK, 10, 1) != 0 && lock(file, F_SETLK, F_RDLCK, 19, 1) != 0);
	CHECK(lock(file, F_SETLK, F_WRLCK, 200, 1) != 0 && lock(file, F_SETLK, F_RDLCK, 200, 1) == 0);
	CHECK(lock(file, F_SETLK, F_WRLCK, 9, 1) == 0 && lock(file, F_SETLK, F_WRLCK, 20, 1) == 0);
	CHECK(lock(file, F_SETLK, F_RDLCK, (off_t)1 << 40, 1) != 0);
	file = open_checked("described", O_RDWR);
	CHECK(lock(file, F_SETLK, F_RDLCK, 5, 1) != 0 && lock(file, F_SETLK, F_WRLCK, 6, 0) == 0);
	CHECK(flock(open_checked("whole", O_RDONLY), LOCK_SH | LOCK_NB) != 0);
	file = open_checked("shared", O_RDONLY);
	CHECK(flock(file, LOCK_EX | LOCK_NB) != 0 && flock(file, LOCK_SH | LOCK_NB) == 0);
	CHECK(flock(open_checked(".", O_RDONLY), LOCK_SH | LOCK_NB) != 0);
	_exit(EXIT_VERIFIED);
}

static void verify(void)
{
	int status = 0;
	if (strcmp(kind, "waits") == 0)
		CHECK(pthread_join(waiter, NULL) == 0);
	pid_t child = fork();
	if (child == 0)
		be_another_process();
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	CHECK(WEXITSTATUS(status) == EXIT_VERIFIED);
	/* A lock of a description stays until its last number is closed. */
	CHECK(close(described) == 0);
	int file = open_checked("described", O_RDWR);
	CHECK(lock(file, F_OFD_SETLK, F_WRLCK, 5, 1) != 0);
	CHECK(close(described_dup) == 0 && lock(file, F_OFD_SETLK, F_WRLCK, 5, 1) == 0);
}
