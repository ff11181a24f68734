/* fanotify groups: of names in a directory, which anybody may have; as root also of a file that is written, with marks that keep events
 * from being told, of a mount, and of a file system. */
#include "victim.h"
#include <sys/fanotify.h>
#include <sys/stat.h>

static int names, written = -1;
static char shown[2][512];

static int group(unsigned flags, unsigned of_events)
{
	int made = fanotify_init(flags | FAN_CLOEXEC | FAN_NONBLOCK, of_events);
	if (made < 0 && (errno == EPERM || errno == ENOSYS || errno == EINVAL)) {
		say("skipped: no fanotify");
		_exit(EXIT_SKIPPED);
	}
	CHECK(made >= 0);
	return made;
}

static void mark(int number, unsigned flags, uint64_t mask, const char *path)
{
	CHECK(fanotify_mark(number, FAN_MARK_ADD | flags, mask, AT_FDCWD, path) == 0);
}

static int compare(const void *one, const void *other)
{
	return strcmp(one, other);
}

/* What /proc says of a group, but for numbers of files, mounts and devices, its marks in an order of their own. */
static void show(int number, char *text)
{
	char path[64], line[512], marks[8][48];
	unsigned flags, told, ignored, count = 0;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", number);
	FILE *info = fopen(path, "re");
	CHECK(info != NULL);
	while (fgets(line, sizeof line, info) != NULL) {
		char *place = strstr(line, "mflags:");
		if (sscanf(line, "fanotify flags:%x event-flags:%x", &flags, &told) == 2)
			sprintf(text, "%x %x", flags, told);
		else if (place != NULL && sscanf(place, "mflags:%x mask:%x ignored_mask:%x", &flags, &told, &ignored) == 3) {
			CHECK(count < 8);
			snprintf(marks[count++], sizeof marks[0], ", %.3s %x %x %x", line + 9, flags, told, ignored);
		}
	}
	fclose(info);
	qsort(marks, count, sizeof marks[0], compare);
	for (unsigned at = 0; at < count; at++)
		strcat(text, marks[at]);
}

/* The masks of all events that there are, one of them with the others'. Files that come with them are the one that is marked. */
static uint64_t events(int number, const char *name)
{
	static char room[4096] __attribute__((aligned(8)));
	uint64_t all = 0;
	ssize_t bytes = read(number, room, sizeof room);
	CHECK(bytes > 0 || errno == EAGAIN);
	for (struct fanotify_event_metadata *event = (void *)room; bytes > 0 && FAN_EVENT_OK(event, bytes);
	     event = FAN_EVENT_NEXT(event, bytes)) {
		all |= event->mask;
		if (event->fd >= 0) {
			struct stat come, there;
			CHECK(fstat(event->fd, &come) == 0 && stat(name, &there) == 0 && come.st_ino == there.st_ino);
			CHECK((fcntl(event->fd, F_GETFL) & O_ACCMODE) == O_RDWR && close(event->fd) == 0);
		} else {
			struct fanotify_event_info_fid *about = (void *)(event + 1);
			struct file_handle *handle = (void *)about->handle;
			CHECK(about->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME);
			CHECK(strcmp((char *)handle->f_handle + handle->handle_bytes, name) == 0);
		}
	}
	return all;
}

static void touch(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(file >= 0 && write(file, "x", 1) == 1 && close(file) == 0);
}

static void set_up(void)
{
	CHECK(mkdir("noted", 0755) == 0);
	touch("noted/file");
	touch("noted/ignored");
	names = group(FAN_CLASS_NOTIF | FAN_REPORT_DFID_NAME, O_RDONLY);
	mark(names, FAN_MARK_ONLYDIR, FAN_CREATE | FAN_DELETE | FAN_ONDIR, "noted");
	show(names, shown[0]);
	if (geteuid() != 0)
		return;
	written = group(FAN_CLASS_CONTENT | FAN_UNLIMITED_QUEUE, O_RDWR | O_CLOEXEC);
	mark(written, 0, FAN_MODIFY | FAN_EVENT_ON_CHILD, "noted");
	mark(written, 0, FAN_CLOSE_WRITE, "noted/file");
	mark(written, FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_MODIFY, "noted/ignored");
	/* Of these nothing is told. */
	mark(written, FAN_MARK_MOUNT | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_ACCESS, "/");
	mark(written, FAN_MARK_FILESYSTEM | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_MODIFY, "/proc");
	show(written, shown[1]);
}

static int is_as_before(int number, const char *before)
{
	char now[512];
	show(number, now);
	return strcmp(now, before) == 0;
}

static void hold(int step)
{
	char name[32], path[64];
	snprintf(name, sizeof name, "new-%d", step);
	snprintf(path, sizeof path, "noted/%s", name);
	CHECK(mkdir(path, 0700) == 0 && rmdir(path) == 0);
	CHECK(events(names, name) == (FAN_CREATE | FAN_DELETE | FAN_ONDIR) && events(names, "") == 0);
	CHECK(is_as_before(names, shown[0]));
	if (written >= 0) {
		touch("noted/ignored");
		CHECK(events(written, "") == 0);
		touch("noted/file");
		CHECK(events(written, "noted/file") == (FAN_MODIFY | FAN_CLOSE_WRITE) && events(written, "") == 0);
		CHECK(is_as_before(written, shown[1]));
	}
	say("step %d %s", step, shown[1]);
}

static void verify(void)
{
	CHECK(fanotify_mark(names, FAN_MARK_REMOVE, FAN_CREATE | FAN_DELETE | FAN_ONDIR, AT_FDCWD, "noted") == 0);
	CHECK(mkdir("noted/after", 0700) == 0 && events(names, "") == 0);
}
