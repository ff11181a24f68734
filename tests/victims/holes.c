/* Memory that is reserved and hardly used: of each, 192 MiB with a few pages in it. Shared memory without a name, a memory file mapped shared
 * and one mapped privately, a file in /dev/shm, a sparse file on disk. Each step writes pages that are there. At the end it says what
 * all of them hold, and how much there is of each: a checkpoint and a restart must allocate nothing. */
#include "victim.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { PLACES = 5, PAGE = 4096, USED = 12 };
#define BYTES ((size_t)192 << 20)

static unsigned char *places[PLACES];
static int files[PLACES] = { -1, -1, -1, -1, -1 };

static size_t offset_of(int number)
{
	return (size_t)number * 2654435761u % (BYTES / PAGE) * PAGE;
}

static void set_up(void)
{
	files[1] = memfd_create("shared", MFD_CLOEXEC);
	files[2] = memfd_create("private", MFD_CLOEXEC);
	char name[64];
	snprintf(name, sizeof name, "/dev/shm/ckpt-holes-%d", getpid());
	files[3] = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(files[3] >= 0 && unlink(name) == 0);
	files[4] = open("sparse", O_RDWR | O_CREAT, 0600);
	for (int place = 0; place < PLACES; place++) {
		int flags = place == 0 ? MAP_SHARED | MAP_ANONYMOUS : place == 2 ? MAP_PRIVATE : MAP_SHARED;
		CHECK(place == 0 || ftruncate(files[place], (off_t)BYTES) == 0);
		places[place] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, files[place], 0);
		CHECK(places[place] != MAP_FAILED);
		for (int number = 0; number < USED; number++)
			places[place][offset_of(number)] = (unsigned char)(place + number + 1);
	}
}

static void hold(int step)
{
	for (int place = 0; place < PLACES; place++)
		for (int number = 0; number < USED; number++)
			places[place][offset_of(number)] += (unsigned char)step;
	say("step %d", step);
}

/* Of what the process has mapped, MiB. */
static long resident_mib(void)
{
	char line[256];
	long kib = -1;
	FILE *status = fopen("/proc/self/status", "re");
	while (fgets(line, sizeof line, status) != NULL && sscanf(line, "RssShmem: %ld", &kib) != 1)
		;
	fclose(status);
	return kib >> 10;
}

static void verify(void)
{
	for (int place = 0; place < PLACES; place++) {
		struct stat status = { .st_blocks = 0 };
		CHECK(files[place] < 0 || fstat(files[place], &status) == 0);
		uint64_t sum = 0;
		for (int number = 0; number < USED; number++)
			sum = mix(sum + places[place][offset_of(number)]);
		say("place %d holds %016lx, %s allocated", place, sum, status.st_blocks / 2048 < 8 ? "little" : "MUCH");
	}
	say("%s shared memory is mapped", resident_mib() < 8 ? "little" : "MUCH");
}
