/* What processes share in /dev/shm and in memory files: POSIX shared memory with a name and without, POSIX semaphores of either kind,
 * a sealed memory file. */
#include "victim.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { BYTES = 3 * 4096, SEALS = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL };

struct common {
	sem_t asked, answered;
	int counted;
};

static struct common *common;
static unsigned char *named, *nameless, *sealed;
static sem_t *semaphore;
static int sealed_file;
static char name[64], semaphore_name[64];
static pid_t child;

static void be_child(void)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		CHECK(sem_wait(&common->asked) == 0);
		common->counted++;
		named[1]++;
		nameless[1]++;
		sealed[1]++;
		if (common->counted > 1000000)
			_exit(8);
		CHECK(sem_post(&common->answered) == 0);
		CHECK(sem_wait(semaphore) == 0);
	}
}

static void *mapped(int file)
{
	CHECK(file >= 0 && (ftruncate(file, BYTES) == 0 || errno == EPERM));
	void *place = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(place != MAP_FAILED);
	return place;
}

static void set_up(void)
{
	snprintf(name, sizeof name, "/ckpt-victim-%d", getpid());
	snprintf(semaphore_name, sizeof semaphore_name, "/ckpt-victim-%d", getpid());
	int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
	named = mapped(file);
	CHECK(close(file) == 0);
	char other[80];
	snprintf(other, sizeof other, "%s-other", name);
	nameless = mapped(shm_open(other, O_RDWR | O_CREAT | O_EXCL, 0600));
	common = mapped(shm_open(other, O_RDWR, 0));
	CHECK(shm_unlink(other) == 0);
	common = (void *)((char *)common + 4096);
	sealed_file = memfd_create("sealed", MFD_ALLOW_SEALING);
	sealed = mapped(sealed_file);
	CHECK(fcntl(sealed_file, F_ADD_SEALS, SEALS) == 0);
	semaphore = sem_open(semaphore_name, O_CREAT | O_EXCL, 0600, 0);
	CHECK(semaphore != SEM_FAILED && sem_init(&common->asked, 1, 0) == 0 && sem_init(&common->answered, 1, 0) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
}

static void hold(int step)
{
	CHECK(sem_post(&common->asked) == 0 && sem_wait(&common->answered) == 0 && sem_post(semaphore) == 0);
	CHECK(common->counted == step && named[1] == (unsigned char)step && nameless[1] == named[1] && sealed[1] == named[1]);
	CHECK(fcntl(sealed_file, F_GET_SEALS) == SEALS && ftruncate(sealed_file, 1) == -1 && errno == EPERM);
	int file = shm_open(name, O_RDWR, 0);
	struct stat about;
	CHECK(file >= 0 && fstat(file, &about) == 0 && (about.st_mode & 0777) == 0640 && about.st_size == BYTES);
	unsigned char *again = mapped(file);
	CHECK(again[1] == named[1] && munmap(again, BYTES) == 0 && close(file) == 0);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	sem_t *again = sem_open(semaphore_name, 0);
	int value = -1;
	/* Whoever opens it by its name has the same. */
	CHECK(again != SEM_FAILED && sem_post(semaphore) == 0 && sem_getvalue(again, &value) == 0 && value >= 1);
	common->counted = 1000000;
	CHECK(sem_post(&common->asked) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 8);
	CHECK(sem_unlink(semaphore_name) == 0 && shm_unlink(name) == 0);
	/* What restarts have saved beside them. */
	for (int checkpoint = 1; checkpoint < 10; checkpoint++) {
		char saved[96];
		snprintf(saved, sizeof saved, "%s.ckpt-%d", name, checkpoint);
		shm_unlink(saved);
		snprintf(saved, sizeof saved, "/sem.%s.ckpt-%d", name + 1, checkpoint);
		shm_unlink(saved);
	}
}
