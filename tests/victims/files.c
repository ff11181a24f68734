/* Regular files and devices: offsets, append, sharing of offsets, flags, sizes; and files that have lost the name that they were opened by,
 * and have another: in the same directory, and in one beside it, as a mailbox has it. */
#include "victim.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { TEXT = 26, HIGH_NUMBER = 200 };
static int append, read_write, read_write_dup, second, cloexec, high, directory, null, zero, urandom, full_device;
static int growing;
enum { MOVED = 2 };
static const char *const was[MOVED] = { "before", "mail/tmp/letter" }, *const is[MOVED] = { "behind", "mail/new/letter" };
static int moved[MOVED];

static int open_checked(const char *path, int flags)
{
	int file = open(path, flags, 0640);
	if (file < 0)
		FAIL("open %s: %d", path, errno);
	return file;
}

static void move_files(void)
{
	CHECK(mkdir("mail", 0755) == 0 && mkdir("mail/tmp", 0755) == 0 && mkdir("mail/new", 0755) == 0);
	for (int number = 0; number < MOVED; number++) {
		moved[number] = open_checked(was[number], O_RDWR | O_CREAT);
		CHECK(write(moved[number], "early", 5) == 5 && link(was[number], is[number]) == 0 && unlink(was[number]) == 0);
	}
}

static void check_moved(void)
{
	for (int number = 0; number < MOVED; number++) {
		char content[16] = "";
		int other = open_checked(is[number], O_RDONLY);
		CHECK(access(was[number], F_OK) == -1);
		CHECK(write(moved[number], " late", 5) == 5 && read(other, content, 15) == 10 && strcmp(content, "early late") == 0);
		close(other);
	}
}

static void set_up(void)
{
	move_files();
	append = open_checked("append", O_WRONLY | O_CREAT | O_APPEND);
	read_write = open_checked("read_write", O_RDWR | O_CREAT | O_TRUNC);
	CHECK(write(read_write, "abcdefghijklmnopqrstuvwxyz", TEXT) == TEXT);
	read_write_dup = dup(read_write);
	second = open_checked("read_write", O_RDONLY);
	cloexec = open_checked("read_write", O_RDONLY | O_CLOEXEC);
	CHECK(dup2(second, HIGH_NUMBER) == HIGH_NUMBER);
	high = HIGH_NUMBER;
	CHECK(fcntl(high, F_SETFD, FD_CLOEXEC) == 0);
	directory = open_checked(".", O_RDONLY | O_DIRECTORY);
	null = open_checked("/dev/null", O_RDWR);
	zero = open_checked("/dev/zero", O_RDONLY);
	urandom = open_checked("/dev/urandom", O_RDONLY);
	full_device = open_checked("/dev/full", O_WRONLY);
	growing = open_checked("growing", O_WRONLY | O_CREAT | O_TRUNC);
	CHECK(lseek(read_write, 3, SEEK_SET) == 3 && lseek(second, 11, SEEK_SET) == 11);
}

static void check_flags(void)
{
	CHECK((fcntl(append, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_WRONLY | O_APPEND));
	CHECK((fcntl(read_write, F_GETFL) & (O_ACCMODE | O_APPEND)) == O_RDWR);
	CHECK(fcntl(cloexec, F_GETFD) == FD_CLOEXEC && fcntl(high, F_GETFD) == FD_CLOEXEC);
	CHECK(fcntl(read_write, F_GETFD) == 0 && fcntl(second, F_GETFD) == 0);
}

/* Two numbers with one offset move together, the third description of the same file on its own. */
static void check_offsets(int step)
{
	char one = 0, other = 0;
	off_t first_at = 3 + step % 10, second_at = 11 + step % 7;
	CHECK(lseek(read_write, 0, SEEK_CUR) == 3 + (step - 1) % 10);
	CHECK(lseek(second, 0, SEEK_CUR) == 11 + (step - 1) % 7);
	CHECK(lseek(cloexec, 0, SEEK_CUR) == 0);
	CHECK(lseek(read_write_dup, first_at, SEEK_SET) == first_at && lseek(read_write, 0, SEEK_CUR) == first_at);
	CHECK(lseek(high, second_at, SEEK_SET) == second_at && lseek(second, 0, SEEK_CUR) == second_at);
	CHECK(pread(read_write, &one, 1, first_at) == 1 && one == (char)('a' + first_at));
	CHECK(pread(second, &other, 1, second_at) == 1 && other == (char)('a' + second_at));
}

static void check_devices(void)
{
	uint64_t random[2] = { 0, 0 }, nothing = 1;
	CHECK(write(null, "x", 1) == 1 && read(null, &nothing, 8) == 0);
	CHECK(read(zero, &nothing, 8) == 8 && nothing == 0);
	CHECK(read(urandom, random, 16) == 16 && random[0] != random[1]);
	CHECK(write(full_device, "x", 1) == -1 && errno == ENOSPC);
}

static void hold(int step)
{
	char line[32];
	struct stat found;
	check_flags();
	check_offsets(step);
	check_devices();
	int length = snprintf(line, sizeof line, "line %d\n", step);
	CHECK(write(append, line, (size_t)length) == length && write(growing, line, (size_t)length) == length);
	CHECK(fstat(growing, &found) == 0 && found.st_size == lseek(growing, 0, SEEK_CUR));
	say("step %d growing %ld", step, (long)found.st_size);
}

static void verify(void)
{
	int found = 0;
	check_moved();
	CHECK(fchdir(directory) == 0);
	DIR *listing = fdopendir(directory);
	CHECK(listing != NULL);
	for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing))
		found |= strcmp(entry->d_name, "growing") == 0;
	CHECK(found);
}
