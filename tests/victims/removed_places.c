/* Places that are gone: it stands in a directory that has been removed, has that and another one open, one with a mode of its own; a device
 * node that has been removed (root alone can make one); and a connection through a socket whose directory has been removed. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static int here, other, null = -1, listener, ends[2];

static void connect_through(const char *directory, const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	strcpy(name.sun_path, path);
	CHECK(mkdir(directory, 0700) == 0);
	listener = socket(AF_UNIX, SOCK_STREAM, 0), ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&name, sizeof name) == 0 && listen(listener, 5) == 0);
	CHECK(connect(ends[0], (struct sockaddr *)&name, sizeof name) == 0);
	CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0);
	CHECK(write(ends[0], "early", 5) == 5);
	CHECK(unlink(path) == 0 && rmdir(directory) == 0);
}

static void set_up(void)
{
	connect_through("run", "run/socket");
	if (mknod("null", S_IFCHR | 0666, makedev(1, 3)) == 0) {
		null = open("null", O_RDWR);
		CHECK(null >= 0 && unlink("null") == 0);
	}
	CHECK(mkdir("here", 0700) == 0 && mkdir("other", 0700) == 0 && chmod("other", 01751) == 0);
	here = open("here", O_RDONLY | O_DIRECTORY), other = open("other", O_RDONLY | O_DIRECTORY);
	CHECK(here >= 0 && other >= 0);
	CHECK(rmdir("other") == 0 && chdir("here") == 0 && rmdir("../here") == 0);
}

static void is_gone(int directory, mode_t mode)
{
	struct stat found;
	CHECK(fstat(directory, &found) == 0 && S_ISDIR(found.st_mode) && found.st_nlink == 0);
	CHECK((found.st_mode & 07777) == mode);
	CHECK(openat(directory, "file", O_WRONLY | O_CREAT, 0600) == -1 && errno == ENOENT);
}

static void hold(int step)
{
	struct stat one, two;
	struct sockaddr_un name;
	socklen_t bytes = sizeof name;
	char path[4096];
	is_gone(here, 0700), is_gone(other, 01751);
	CHECK(getcwd(path, sizeof path) == NULL && errno == ENOENT);
	CHECK(stat(".", &one) == 0 && fstat(here, &two) == 0 && one.st_ino == two.st_ino);
	if (null >= 0)
		CHECK(fstat(null, &one) == 0 && one.st_rdev == makedev(1, 3) && write(null, "x", 1) == 1);
	CHECK(getsockname(listener, (struct sockaddr *)&name, &bytes) == 0 && strcmp(name.sun_path, "run/socket") == 0);
	say("step %d", step);
}

static void verify(void)
{
	char text[16] = "";
	CHECK(read(ends[1], text, sizeof text) == 5 && strcmp(text, "early") == 0);
	CHECK(write(ends[1], "late", 4) == 4 && read(ends[0], text, sizeof text) == 4);
}
