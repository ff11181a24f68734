/* What each thread has of its own: name, processors, scheduling, timer slack, I/O priority. What its user may not choose, a
 * thread does without. */
#include "victim.h"
#include <sched.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { THREADS = 6, IOPRIO_OF_A_THREAD = 1, IO_BEST_EFFORT = 2 << 13, IO_IDLE = 3 << 13 };

struct attributes {
	char name[16];
	cpu_set_t processors;
	int policy, priority, nice;
	long slack_ns, io_priority;
};

static struct attributes set[THREADS];
static pthread_t threads[THREADS];
static sem_t asked[THREADS], answered;
static volatile int over;

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		CHECK(errno == EINTR);
}

static void look(struct attributes *found)
{
	memset(found, 0, sizeof *found);
	struct sched_param parameters;
	CHECK(prctl(PR_GET_NAME, found->name) == 0);
	CHECK(sched_getaffinity(0, sizeof found->processors, &found->processors) == 0);
	found->policy = sched_getscheduler(0);
	CHECK(sched_getparam(0, &parameters) == 0);
	found->priority = parameters.sched_priority;
	found->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
	found->slack_ns = prctl(PR_GET_TIMERSLACK);
	found->io_priority = syscall(SYS_ioprio_get, IOPRIO_OF_A_THREAD, 0);
}

static void choose(int number)
{
	static const int policies[THREADS] = { SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_FIFO, SCHED_RR, SCHED_OTHER };
	char name[16];
	snprintf(name, sizeof name, "th r)ead %d", number);
	CHECK(prctl(PR_SET_NAME, name) == 0);
	cpu_set_t all, some;
	CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
	CPU_ZERO(&some);
	for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && nth++ % THREADS % (number % 2 + 2) == 0)
			CPU_SET(cpu, &some);
	CHECK(sched_setaffinity(0, sizeof some, &some) == 0);
	CHECK(prctl(PR_SET_TIMERSLACK, 100000 + 1000 * number) == 0);
	CHECK(syscall(SYS_ioprio_set, IOPRIO_OF_A_THREAD, 0, number % 2 ? IO_IDLE : IO_BEST_EFFORT + number) == 0);
	if (setpriority(PRIO_PROCESS, (id_t)gettid(), number * 3 - 5) != 0)
		CHECK(errno == EACCES || errno == EPERM);
	int is_real_time = policies[number] == SCHED_FIFO || policies[number] == SCHED_RR;
	struct sched_param parameters = { .sched_priority = is_real_time ? number : 0 };
	int flag = number % 2 ? SCHED_RESET_ON_FORK : 0;
	if (sched_setscheduler(0, policies[number] | flag, &parameters) != 0)
		CHECK(errno == EPERM && is_real_time);
}

static void *have_attributes(void *argument)
{
	long number = (long)argument;
	struct attributes found;
	choose((int)number);
	look(&set[number]);
	sem_post(&answered);
	for (;;) {
		wait_for(&asked[number]);
		if (over)
			return NULL;
		look(&found);
		if (memcmp(&found, &set[number], sizeof found) != 0)
			FAIL("%s: policy %d priority %d nice %d slack %ld I/O %lx; was %s: %d %d %d %ld %lx", found.name,
			     found.policy, found.priority, found.nice, found.slack_ns, found.io_priority, set[number].name,
			     set[number].policy, set[number].priority, set[number].nice, set[number].slack_ns,
			     set[number].io_priority);
		sem_post(&answered);
	}
}

static void set_up(void)
{
	sem_init(&answered, 0, 0);
	for (long number = 0; number < THREADS; number++) {
		sem_init(&asked[number], 0, 0);
		CHECK(pthread_create(&threads[number], NULL, have_attributes, (void *)number) == 0);
		wait_for(&answered);
	}
}

static void hold(int step)
{
	for (int number = 0; number < THREADS; number++) {
		sem_post(&asked[number]);
		wait_for(&answered);
	}
	say("step %d", step);
}

static void verify(void)
{
	over = 1;
	for (int number = 0; number < THREADS; number++)
		sem_post(&asked[number]);
	for (int number = 0; number < THREADS; number++)
		CHECK(pthread_join(threads[number], NULL) == 0);
}
