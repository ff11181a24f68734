/* A child with another root directory than its parent (chroot; root alone may), in a directory below that: it opens files by paths from its
 * root, has one open, and finds nothing of what is outside. */
#include "victim.h"
#include <sys/stat.h>
#include <sys/wait.h>

static int ask_child[2], child_answers[2], is_changed;
static pid_t child;

static int is_jailed(void)
{
	char text[16] = "", place[64];
	struct stat root, here;
	int file = open("/inner/file", O_RDONLY);
	if (file < 0 || read(file, text, sizeof text) != 7 || memcmp(text, "in jail", 7) != 0)
		return 0;
	close(file);
	if (access("/proc", F_OK) == 0 || stat("/", &root) != 0 || stat("..", &here) != 0 || root.st_ino != here.st_ino)
		return 0;
	return getcwd(place, sizeof place) != NULL && strcmp(place, "/inner") == 0;
}

static void be_child(void)
{
	char byte;
	CHECK(chdir("/inner") == 0);
	int kept = open("file", O_RDONLY);
	CHECK(kept >= 0 && lseek(kept, 3, SEEK_SET) == 3);
	while (read(ask_child[0], &byte, 1) == 1) {
		byte = (char)(is_jailed() && lseek(kept, 0, SEEK_CUR) == 3);
		CHECK(write(child_answers[1], &byte, 1) == 1);
	}
	_exit(read(kept, &byte, 1) == 1 && byte == 'j' ? 6 : 1);
}

static void set_up(void)
{
	CHECK(mkdir("jail", 0755) == 0 && mkdir("jail/inner", 0755) == 0);
	int file = open("jail/inner/file", O_WRONLY | O_CREAT, 0644);
	CHECK(file >= 0 && write(file, "in jail", 7) == 7 && close(file) == 0);
	CHECK(pipe(ask_child) == 0 && pipe(child_answers) == 0);
	is_changed = geteuid() == 0;
	if (!is_changed)
		return;
	child = fork();
	if (child == 0) {
		close(ask_child[1]);
		CHECK(chroot("jail") == 0);
		be_child();
	}
}

static void hold(int step)
{
	char byte = 0;
	if (is_changed)
		CHECK(write(ask_child[1], "?", 1) == 1 && read(child_answers[0], &byte, 1) == 1 && byte == 1);
	CHECK(access("jail/inner/file", R_OK) == 0);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	if (!is_changed)
		return;
	close(ask_child[1]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 6);
}
