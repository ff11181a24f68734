/* A program without descriptors: it closes all of them and uses the numbers again.
 *
 * KIND "none" holds no descriptor between its steps; "full" holds /dev/null under every number that its limit
 * allows. Lines go to the file "lines" at fixed places, through a descriptor that is open only for the write, so
 * writing one twice does no harm. */
#include "victim.h"
#include <sys/resource.h>

enum { LIMIT = 64, LINE_BYTES = 64 };

static int full, line_number;

static void put_in_file(const char *line, size_t bytes)
{
	char padded[LINE_BYTES];
	if (full)
		close(LIMIT / 2);
	int file = open("lines", O_WRONLY | O_CREAT, 0644);
	if (file != (full ? LIMIT / 2 : 0))
		_exit(4);
	memset(padded, ' ', sizeof padded);
	memcpy(padded, line, bytes - 1 < LINE_BYTES - 1 ? bytes - 1 : LINE_BYTES - 1);
	padded[LINE_BYTES - 1] = '\n';
	if (pwrite(file, padded, LINE_BYTES, (off_t)line_number++ * LINE_BYTES) != LINE_BYTES)
		_exit(5);
	close(file);
	if (full && open("/dev/null", O_RDWR) != LIMIT / 2)
		_exit(6);
}

static void set_up(void)
{
	struct rlimit limit = { LIMIT, LIMIT };
	full = strcmp(kind, "full") == 0;
	put_line = put_in_file;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	for (int number = 0; number < LIMIT; number++)
		close(number);
	if (full)
		for (int number = 0; number < LIMIT; number++)
			if (open("/dev/null", O_RDWR) != number)
				_exit(7);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void) {}
