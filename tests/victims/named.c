/* Descriptors that only name something (O_PATH): symbolic links themselves, one of which leads nowhere, a named pipe, the socket of a
 * listener of its own, and a file. */
#include "victim.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { LINK, DANGLING, FIFO, SOCKET, FILE_ITSELF, ALL };

static const char *const names[ALL] = { "names/link", "names/dangling", "names/fifo", "names/socket", "names/file" };
static const mode_t formats[ALL] = { S_IFLNK, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFREG };
static int named[ALL], listener;

static void set_up(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	strcpy(name.sun_path, names[SOCKET]);
	CHECK(mkdir("names", 0700) == 0);
	int made = open(names[FILE_ITSELF], O_WRONLY | O_CREAT, 0600);
	CHECK(made >= 0 && write(made, "text", 4) == 4 && close(made) == 0);
	CHECK(symlink("file", names[LINK]) == 0 && symlink("/no/where", names[DANGLING]) == 0);
	CHECK(mkfifo(names[FIFO], 0600) == 0 && open(names[FIFO], O_RDWR) >= 0);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&name, sizeof name) == 0 && listen(listener, 5) == 0);
	for (int each = 0; each < ALL; each++)
		CHECK((named[each] = open(names[each], O_PATH | O_NOFOLLOW | O_CLOEXEC)) >= 0);
}

static void hold(int step)
{
	char target[64] = "";
	for (int each = 0; each < ALL; each++) {
		struct stat found, there;
		CHECK(fstat(named[each], &found) == 0 && (found.st_mode & S_IFMT) == formats[each]);
		CHECK(lstat(names[each], &there) == 0 && there.st_ino == found.st_ino);
		CHECK((fcntl(named[each], F_GETFL) & O_PATH) != 0 && fcntl(named[each], F_GETFD) == FD_CLOEXEC);
	}
	CHECK(readlinkat(named[LINK], "", target, sizeof target) == 4 && memcmp(target, "file", 4) == 0);
	CHECK(readlinkat(named[DANGLING], "", target, sizeof target) == 9 && memcmp(target, "/no/where", 9) == 0);
	say("step %d", step);
}

static void verify(void)
{
	char path[64];
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int other = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d", named[SOCKET]);
	CHECK(connect(other, (struct sockaddr *)&name, sizeof name) == 0 && accept(listener, NULL, NULL) >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", named[FILE_ITSELF]);
	int file = open(path, O_RDONLY);
	CHECK(file >= 0 && read(file, path, sizeof path) == 4 && memcmp(path, "text", 4) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", named[FIFO]);
	CHECK((file = open(path, O_RDWR | O_NONBLOCK)) >= 0 && write(file, "x", 1) == 1);
}
