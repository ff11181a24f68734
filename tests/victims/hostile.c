/* A program that wishes whoever looks at it ill, by what it keeps in its memory for ckpt. KIND:
 * "flips": all of its control block changes all the time;
 * "cycle": its list of allocations leads to itself, each time with as many as fit;
 * "lengths": and its allocations have lengths beyond all addresses;
 * "job": it says that it belongs to another job, 4711;
 * "tree": it wishes for a directory that it may not read (HOSTILE_TREE);
 * "maps": it has a file mapped that it may write to (HOSTILE_FILE);
 * "faults", "spins", "other": where libckpt.so keeps a system call for the agent are an instruction that faults, a loop, and another call;
 * "honest": nothing.
 * It begins when "begin" is there. Numbers of the layout are in HOSTILE_LAYOUT: bytes of the block, offsets of its allocations and
 * of its directories, bytes of an area, offsets of its starts and allocations, offsets of the block's job
 * and of the address of its system call. It works as user HOSTILE_USER, if that is said. */
#include "victim.h"
#include <dlfcn.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static unsigned long layout[8];
enum { BLOCK, ALLOCATIONS, TREES, AREA, STARTS, ENTRIES, JOB, CALL };

static unsigned char *block;

static void *flip(void *unused)
{
	static unsigned char good[1 << 20], bad[1 << 20];
	uint64_t random = 1;
	(void)unused;
	memcpy(good, block, layout[BLOCK]);
	for (;;) {
		for (size_t at = 0; at + 8 <= layout[BLOCK]; at += 8) {
			random = mix(random);
			memcpy(bad + at, &random, 8);
		}
		/* The head stays, or it is no block at all. */
		memcpy(bad, good, 24);
		for (size_t at = 24; at + 8 <= layout[BLOCK]; at += 8) {
			if (mix(random + at) % 64 == 0)
				memcpy(block + at, bad + at, 8);
		}
		memcpy(block, good, layout[BLOCK]);
	}
	return NULL;
}

static void make_cycle(uint64_t length)
{
	enum { GRANULES = 1 << 16, GRANULE = 1 << 16 };
	uint64_t bytes = (uint64_t)GRANULES * GRANULE;
	unsigned char *area = mmap(NULL, layout[AREA], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *room = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(area != MAP_FAILED && room != MAP_FAILED);
	uint64_t first = ((uint64_t)room + bytes - 1) / bytes * bytes, next = (uint64_t)area;
	memcpy(area, &first, 8);
	memcpy(area + 8, &next, 8);
	for (uint64_t granule = 0; granule < GRANULES; granule++) {
		uint64_t start = first + granule * GRANULE, entry[3] = { granule + 1, length, 0 };
		memcpy(area + layout[STARTS] + granule * 8, &start, 8);
		memcpy(area + layout[ENTRIES] + granule * sizeof entry, entry, sizeof entry);
	}
	uint64_t table;
	memcpy(&table, block + layout[ALLOCATIONS], 8);
	CHECK(table != 0);
	memcpy((unsigned char *)table + 8, &next, 8);
}

static void become(const char *user)
{
	uid_t id = (uid_t)atoi(user);
	CHECK(setgroups(0, NULL) == 0 && setresgid(id, id, id) == 0 && setresuid(id, id, id) == 0);
	CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
}

static void map(const char *path)
{
	int file = open(path, O_RDWR);
	CHECK(file >= 0 && mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) != MAP_FAILED);
	close(file);
}

static void set_up(void)
{
	const char *user = getenv("HOSTILE_USER");
	if (user != NULL)
		become(user);
	if (strcmp(kind, "maps") == 0)
		map(getenv("HOSTILE_FILE"));
}

static void overwrite(const char *code, size_t bytes)
{
	uint64_t address, page = sysconf(_SC_PAGESIZE);
	memcpy(&address, block + layout[CALL], sizeof(address));
	CHECK(mprotect((void *)(address / page * page), 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	memcpy((void *)address, code, bytes);
}

static void begin(void)
{
	char *rest = getenv("HOSTILE_LAYOUT");
	pthread_t thread;
	for (int index = 0; index < 8; index++)
		layout[index] = strtoul(rest, &rest, 10);
	block = dlsym(RTLD_DEFAULT, "ckpt_control");
	CHECK(block != NULL);
	uint64_t start = (uint64_t)block / 4096 * 4096;
	CHECK(mprotect((void *)start, layout[BLOCK] + 4096, PROT_READ | PROT_WRITE) == 0);
	if (strcmp(kind, "flips") == 0)
		CHECK(pthread_create(&thread, NULL, flip, NULL) == 0);
	else if (strcmp(kind, "cycle") == 0)
		make_cycle(1 << 16);
	else if (strcmp(kind, "lengths") == 0)
		make_cycle(UINT64_MAX);
	else if (strcmp(kind, "job") == 0)
		memcpy(block + layout[JOB], &(uint64_t){ 0x4711 }, 8);
	else if (strcmp(kind, "tree") == 0)
		strcpy((char *)block + layout[TREES], getenv("HOSTILE_TREE"));
	else if (strcmp(kind, "faults") == 0)
		overwrite("\x0f\x0b", 2); /* ud2 */
	else if (strcmp(kind, "spins") == 0)
		overwrite("\xeb\xfe", 2); /* jmp . */
	else if (strcmp(kind, "other") == 0)
		overwrite("\xb8\x22\x00\x00\x00\x0f\x05", 7); /* pause() */
	say("hostile");
}

static void hold(int step)
{
	static int has_begun;
	if (!has_begun && access("begin", F_OK) == 0) {
		has_begun = 1;
		begin();
	}
	say("step %d", step);
}

static void verify(void)
{
}
