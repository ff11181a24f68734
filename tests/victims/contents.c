/* Files whose content changes at every step, in ways that no size tells: overwritten, cut, grown again; with a name and
 * without one, in memory, mapped and not. The program knows what must be in each, and looks at every step. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { ROOM = 5 * 4096 + 123, MAPPED = 3 * 4096, HOLE = 48 << 20 };

struct file {
	const char *name;
	int number;
	size_t bytes;
	unsigned char content[ROOM];
};

static struct file plain = { .name = "plain" }, write_only = { .name = "write_only" }, unlinked = { .name = "unlinked" };
static struct file unnamed = { .name = "unnamed" }, in_memory = { .name = "in_memory" }, mapped = { .name = "mapped" };
static struct file sealed = { .name = "sealed" };
static struct file *const changing[] = { &plain, &write_only, &unlinked, &unnamed, &in_memory };
static unsigned char *mapping, *memory_mapping;
static int second_unlinked, hole;
static uint64_t state = 1;

static size_t below(size_t limit)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)(state >> 33) % limit;
}

static int opened(const char *path, int flags)
{
	int number = open(path, flags, 0640);
	if (number < 0)
		FAIL("open %s: %d", path, errno);
	return number;
}

static void put(struct file *file, size_t at, size_t bytes)
{
	for (size_t i = at; i < at + bytes; i++)
		file->content[i] = (unsigned char)below(256);
	CHECK(pwrite(file->number, file->content + at, bytes, (off_t)at) == (ssize_t)bytes);
	if (at + bytes > file->bytes)
		file->bytes = at + bytes;
}

static void change(struct file *file)
{
	size_t at = below(file->bytes + 1);
	switch (below(4)) {
	case 0: /* a few bytes somewhere */
		put(file, at, below(ROOM - at) % 100);
		break;
	case 1: /* cut */
		CHECK(ftruncate(file->number, (off_t)at) == 0);
		memset(file->content + at, 0, ROOM - at);
		file->bytes = at;
		break;
	case 2: /* longer, with a hole */
		CHECK(ftruncate(file->number, ROOM) == 0);
		file->bytes = ROOM;
		break;
	default: /* all of it */
		put(file, 0, ROOM - below(4096));
	}
}

static void check(const struct file *file, int number)
{
	static unsigned char found[ROOM + 1];
	struct stat about;
	CHECK(fstat(number, &about) == 0);
	ssize_t bytes = pread(number, found, sizeof found, 0);
	if (bytes != (ssize_t)file->bytes || about.st_size != bytes || memcmp(found, file->content, file->bytes) != 0)
		FAIL("%s has %zd bytes of another content", file->name, bytes);
}

static void check_by_name(const struct file *file)
{
	int number = opened(file->name, O_RDONLY);
	check(file, number);
	close(number);
}

static void map(struct file *file)
{
	file->number = opened(file->name, O_RDWR | O_CREAT | O_TRUNC);
	put(file, 0, MAPPED);
	mapping = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED, file->number, 0);
	CHECK(mapping != MAP_FAILED);
	close(file->number);
}

static void set_up(void)
{
	plain.number = opened("plain", O_RDWR | O_CREAT | O_TRUNC);
	write_only.number = opened("write_only", O_WRONLY | O_CREAT | O_TRUNC);
	unlinked.number = opened("unlinked", O_RDWR | O_CREAT | O_TRUNC);
	second_unlinked = opened("unlinked", O_RDONLY);
	CHECK(lseek(second_unlinked, 7, SEEK_SET) == 7 && unlink("unlinked") == 0);
	unnamed.number = opened(".", O_RDWR | O_TMPFILE);
	in_memory.number = memfd_create("in_memory", MFD_ALLOW_SEALING);
	CHECK(ftruncate(in_memory.number, ROOM) == 0);
	in_memory.bytes = ROOM;
	memory_mapping = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, in_memory.number, 4096);
	sealed.number = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	CHECK(memory_mapping != MAP_FAILED && sealed.number >= 0);
	put(&sealed, 0, 5000);
	CHECK(fcntl(sealed.number, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	map(&mapped);
	hole = opened("hole", O_RDWR | O_CREAT | O_TRUNC);
	CHECK(ftruncate(hole, HOLE) == 0 && pwrite(hole, "end", 3, HOLE - 3) == 3);
}

static void check_all(void)
{
	char end[4] = "";
	struct stat about;
	check(&plain, plain.number);
	check_by_name(&plain);
	check_by_name(&write_only);
	check(&unlinked, unlinked.number);
	check(&unlinked, second_unlinked);
	CHECK(lseek(second_unlinked, 0, SEEK_CUR) == 7 && (fcntl(second_unlinked, F_GETFL) & O_ACCMODE) == O_RDONLY);
	check(&unnamed, unnamed.number);
	check(&in_memory, in_memory.number);
	check(&sealed, sealed.number);
	CHECK(fcntl(sealed.number, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	CHECK(fcntl(sealed.number, F_GETFD) == FD_CLOEXEC && fcntl(in_memory.number, F_GET_SEALS) == 0);
	check_by_name(&mapped);
	CHECK(memcmp(mapping, mapped.content, MAPPED) == 0);
	CHECK(fstat(unlinked.number, &about) == 0 && about.st_nlink == 0 && (about.st_mode & 0777) == 0640);
	CHECK(pread(hole, end, 3, HOLE - 3) == 3 && strcmp(end, "end") == 0);
}

static void hold(int step)
{
	check_all();
	for (size_t i = 0; i < sizeof changing / sizeof *changing; i++)
		/* A mapped page behind the end of its file could not be touched. */
		if (changing[i] == &in_memory)
			put(&in_memory, below(ROOM - 100), 100);
		else
			change(changing[i]);
	size_t at = below(MAPPED);
	mapped.content[at] = mapping[at] = (unsigned char)step;
	at = below(2 * 4096);
	in_memory.content[4096 + at] = memory_mapping[at] = (unsigned char)step;
	say("step %d: %zu %zu %zu", step, plain.bytes, unlinked.bytes, unnamed.bytes);
}

static void verify(void)
{
	check_all();
}
