/* What a program has of a root file system: files of the host it runs on, files and directories of the system, watches of them, locks;
 * and a directory under /tmp with all that it works with. `settled STEPS NAME`, for /tmp/NAME. Each step looks at all of it. */
#include "victim.h"
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { BYTES = 64, FILES = 3 };

static const char *const of_host[FILES] = { "/etc/hostname", "/etc/hosts", "/etc/resolv.conf" };
static const char *const watched[] = { "/etc", "/etc/passwd", "/usr/lib", "deep", "deep/written" };
static int opened[FILES], written, read_again, directory, system_file, system_directory, watcher;
static const char *shared[FILES], *private[FILES];
static char content[FILES][BYTES];
static char work[256];

static void set_up(void)
{
	snprintf(work, sizeof work, "/tmp/%s", kind);
	CHECK(mkdir(work, 0750) == 0 && chdir(work) == 0 && mkdir("deep", 0700) == 0);
	CHECK((written = open("deep/written", O_RDWR | O_CREAT, 0640)) >= 0 && write(written, "content", 7) == 7);
	CHECK((read_again = open("deep/written", O_RDONLY)) >= 0);
	CHECK((directory = open("deep", O_RDONLY | O_DIRECTORY)) >= 0);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK(fcntl(written, F_SETLK, &lock) == 0);

	for (int file = 0; file < FILES; file++) {
		CHECK((opened[file] = open(of_host[file], O_RDONLY)) >= 0);
		CHECK(pread(opened[file], content[file], BYTES - 1, 0) >= 0 && lseek(opened[file], 2, SEEK_SET) == 2);
		shared[file] = mmap(NULL, 4096, PROT_READ, MAP_SHARED, opened[file], 0);
		private[file] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, opened[file], 0);
		CHECK(shared[file] != MAP_FAILED && private[file] != MAP_FAILED);
		CHECK(memcmp(shared[file], content[file], strlen(content[file])) == 0);
	}
	CHECK((system_file = open("/etc/passwd", O_RDONLY)) >= 0 && flock(system_file, LOCK_SH) == 0);
	CHECK((system_directory = open("/usr/lib", O_RDONLY | O_DIRECTORY)) >= 0);
	CHECK((watcher = inotify_init1(IN_NONBLOCK)) >= 0);
	for (size_t place = 0; place < sizeof watched / sizeof *watched; place++)
		CHECK(inotify_add_watch(watcher, watched[place], IN_CREATE | IN_ATTRIB) == (int)place + 1);
}

static void hold(int step)
{
	char text[BYTES] = "", found[256];
	struct stat one, other;
	CHECK(getcwd(found, sizeof found) != NULL && strcmp(found, work) == 0);
	CHECK(pread(written, text, 7, 0) == 7 && strcmp(text, "content") == 0);
	CHECK(pread(read_again, text, 7, 0) == 7 && strcmp(text, "content") == 0);
	CHECK(fstat(directory, &one) == 0 && stat("deep", &other) == 0 && one.st_ino == other.st_ino);
	CHECK((one.st_mode & 07777) == 0700 && stat(work, &other) == 0 && (other.st_mode & 07777) == 0750);
	/* Mapped is what was there in the first life, open what is there now. */
	for (int file = 0; file < FILES; file++) {
		CHECK(memcmp(shared[file], content[file], strlen(content[file])) == 0);
		CHECK(memcmp(private[file], content[file], strlen(content[file])) == 0);
		CHECK(lseek(opened[file], 0, SEEK_CUR) == 2);
		CHECK(fstat(opened[file], &one) == 0 && stat(of_host[file], &other) == 0 && one.st_ino == other.st_ino);
	}
	CHECK(fstat(system_file, &one) == 0 && stat("/etc/passwd", &other) == 0 && one.st_ino == other.st_ino);
	CHECK(fstat(system_directory, &one) == 0 && stat("/usr/lib", &other) == 0 && one.st_ino == other.st_ino);
	ssize_t bytes = readlink("/proc/self/exe", found, sizeof found - 1);
	CHECK(bytes > 0);
	say("step %d", step);
}

static void verify(void)
{
	char events[1024], *at = events;
	CHECK(read(watcher, events, sizeof events) < 0 && errno == EAGAIN);
	int made = open("deep/made", O_RDWR | O_CREAT, 0600);
	CHECK(made >= 0 && fchmod(written, 0600) == 0 && fchmod(system_file, 0644) == 0);
	ssize_t bytes = read(watcher, events, sizeof events);
	int seen = 0;
	for (; at < events + bytes; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
		seen |= 1 << ((struct inotify_event *)at)->wd;
	/* Of deep, of written in it, of /etc/passwd, and of that in /etc. */
	CHECK(seen == (1 << 1 | 1 << 2 | 1 << 4 | 1 << 5));
	CHECK(unlink("deep/made") == 0 && unlink("deep/written") == 0 && rmdir("deep") == 0 && rmdir(work) == 0);
}
