/* Signals of the C library's own, 32 and 33, which a thread has not taken yet, because it blocks them by a raw call, as it does for a moment
 * each time. KIND "cancelled": by pthread_cancel; "setuid": by setuid in another thread, which waits until all others have answered. */
#include "victim.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static pthread_t target, other;
static atomic_int tid, may_go_on, has_returned;

static void own_signal(int how, int number)
{
	uint64_t set = UINT64_C(1) << (number - 1);
	CHECK(syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof set) == 0);
}

/* Without a point at which it could be cancelled. */
static void nap(void)
{
	struct timespec moment = { 0, 1000000 };
	syscall(SYS_nanosleep, &moment, NULL);
}

static void *blocks(void *number)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	own_signal(SIG_BLOCK, (int)(intptr_t)number);
	atomic_store(&tid, gettid());
	while (!atomic_load(&may_go_on))
		nap();
	own_signal(SIG_UNBLOCK, (int)(intptr_t)number);
	for (;;)
		nap();
	return NULL;
}

static void *sets(void *unused)
{
	CHECK(setuid(getuid()) == 0);
	atomic_store(&has_returned, 1);
	return unused;
}

static int is_pending(void)
{
	char line[128], name[64];
	unsigned long pending = 0, found;
	snprintf(name, sizeof name, "/proc/self/task/%d/status", atomic_load(&tid));
	FILE *status = fopen(name, "re");
	if (status == NULL)
		return 0;
	while (fgets(line, sizeof line, status) != NULL)
		if (sscanf(line, "SigPnd: %lx", &found) == 1)
			pending = found;
	fclose(status);
	return (pending >> 31 & 3) != 0;
}

static void set_up(void)
{
	int number = strcmp(kind, "setuid") == 0 ? 33 : 32;
	CHECK(pthread_create(&target, NULL, blocks, (void *)(intptr_t)number) == 0);
	while (atomic_load(&tid) == 0)
		nap();
	if (number == 32)
		CHECK(pthread_cancel(target) == 0);
	else
		CHECK(pthread_create(&other, NULL, sets, NULL) == 0);
	while (!is_pending())
		nap();
}

static void hold(int step)
{
	CHECK(!atomic_load(&has_returned));
	say("step %d", step);
}

static void verify(void)
{
	atomic_store(&may_go_on, 1);
	if (strcmp(kind, "setuid") == 0) {
		CHECK(pthread_join(other, NULL) == 0);
		return say("setuid has returned");
	}
	void *result;
	CHECK(pthread_join(target, &result) == 0);
	say("%s", result == PTHREAD_CANCELED ? "cancelled" : "NOT cancelled");
}
