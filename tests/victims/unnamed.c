/* What fstat says of open files without a name: owner, group, mode and the time of the last change; a deleted file, one that never had a
 * name, and a memory file. On each is a lock of another kind. And a memory file that is a program can be executed. */
#include "victim.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { FILES = 3 };

static int files[FILES], probes[FILES];
static struct stat before[FILES];
static int script;

static void is_executed(void)
{
	char *arguments[] = { "true", NULL }, *environment[] = { NULL };
	int status;
	pid_t child = vfork();
	if (child == 0) {
		fexecve(script, arguments, environment);
		_exit(errno);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && (errno = WEXITSTATUS(status)) == 0);
}

/* A lock of the process, one of the description, and one of the whole file; each excludes another description. */
static void lock_all(void)
{
	struct flock process = { .l_type = F_WRLCK, .l_start = 1, .l_len = 2 }, description = process;
	for (int number = 0; number < FILES; number++) {
		char path[32];
		snprintf(path, sizeof path, "/proc/self/fd/%d", files[number]);
		CHECK((probes[number] = open(path, O_RDWR)) >= 0);
	}
	CHECK(fcntl(files[0], F_SETLK, &process) == 0 && fcntl(files[1], F_OFD_SETLK, &description) == 0);
	CHECK(flock(files[2], LOCK_EX) == 0);
}

static void are_locked(void)
{
	for (int number = 0; number < 2; number++) {
		struct flock found = { .l_type = F_WRLCK };
		CHECK(fcntl(probes[number], F_OFD_GETLK, &found) == 0);
		CHECK(found.l_type == F_WRLCK && found.l_start == 1 && found.l_len == 2);
		CHECK(found.l_pid == (number == 0 ? getpid() : -1));
	}
	CHECK(flock(probes[2], LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
}

static void set_up(void)
{
	script = memfd_create("script", 0);
	CHECK(write(script, "#!/bin/true", 11) == 11);
	files[0] = open("deleted", O_RDWR | O_CREAT, 0640);
	CHECK(files[0] >= 0 && unlink("deleted") == 0);
	files[1] = open(".", O_RDWR | O_TMPFILE, 0604);
	files[2] = memfd_create("memory", MFD_CLOEXEC);
	for (int number = 0; number < FILES; number++) {
		struct timespec times[2] = { { 1000 + number, 7 }, { 123456 + number, 789000000 } };
		CHECK(write(files[number], "content", 7) == 7);
		CHECK(fchmod(files[number], (mode_t)(0600 + number)) == 0);
		CHECK(futimens(files[number], times) == 0 && fstat(files[number], &before[number]) == 0);
	}
	lock_all();
}

static void hold(int step)
{
	are_locked();
	for (int number = 0; number < FILES; number++) {
		struct stat now;
		CHECK(fstat(files[number], &now) == 0);
		CHECK(now.st_mode == before[number].st_mode && now.st_size == 7);
		CHECK(now.st_uid == before[number].st_uid && now.st_gid == before[number].st_gid);
		CHECK(now.st_mtim.tv_sec == before[number].st_mtim.tv_sec && now.st_mtim.tv_nsec == before[number].st_mtim.tv_nsec);
	}
	say("step %d", step);
}

static void verify(void)
{
	char content[8] = "";
	is_executed();
	are_locked();
	CHECK(lseek(script, 0, SEEK_CUR) == 11 && write(script, " ", 1) == 1);
	for (int number = 0; number < FILES; number++)
		CHECK(pread(files[number], content, 7, 0) == 7 && strcmp(content, "content") == 0);
}
