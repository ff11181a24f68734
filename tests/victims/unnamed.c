/* What fstat says of open files without a name: owner, group, mode and the time of the last change; a deleted file, one that never had a
 * name, and a memory file. And a memory file that is a program can be executed. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { FILES = 3 };

static int files[FILES];
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
}

static void hold(int step)
{
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
	CHECK(lseek(script, 0, SEEK_CUR) == 11 && write(script, " ", 1) == 1);
	for (int number = 0; number < FILES; number++)
		CHECK(pread(files[number], content, 7, 0) == 7 && strcmp(content, "content") == 0);
}
