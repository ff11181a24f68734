/* A thread that sleeps in a function of this program for as long as the steps last, and is then looked at from a signal handler:
 * an unwinder finds the way from where it sleeps to that function, and cancelling it runs what it has to do at its end. */
#include "victim.h"
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>

static pthread_t sleeper;
static volatile int handled, seen, cleaned;

/* Around the system call, with what it returns to. */
extern char sleep_began[], sleep_ended[];

static void look(int signal)
{
	(void)signal;
	void *frames[32];
	int count = backtrace(frames, 32);
	for (int i = 0; i < count; i++)
		seen |= (char *)frames[i] > sleep_began && (char *)frames[i] < sleep_ended;
	handled = 1;
}

static void clean(void *argument)
{
	(void)argument;
	cleaned = 1;
}

static __attribute__((noinline, noclone)) long sleep_here(const struct timespec *time)
{
	long answer = SYS_nanosleep;
	__asm__ volatile("sleep_began: syscall\n\tnop\n\tsleep_ended:"
			 : "+a"(answer)
			 : "D"(time), "S"(0)
			 : "rcx", "r11", "memory");
	return answer;
}

static void *run(void *argument)
{
	struct timespec time = { 3600, 0 };
	long answer = sleep_here(&time);
	pthread_cleanup_push(clean, argument);
	if (answer == -EINTR)
		for (;;)
			nanosleep(&time, NULL);
	pthread_cleanup_pop(0);
	return NULL;
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = look };
	void *frames[2];
	/* Loads the unwinder, which must not happen in a handler. */
	CHECK(backtrace(frames, 2) > 0 && sigaction(SIGRTMIN + 1, &action, NULL) == 0);
	CHECK(pthread_create(&sleeper, NULL, run, NULL) == 0);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	void *answer = NULL;
	CHECK(pthread_kill(sleeper, SIGRTMIN + 1) == 0);
	for (int i = 0; i < 5000 && !handled; i++)
		sleep_ms(1);
	CHECK(handled && seen);
	CHECK(pthread_cancel(sleeper) == 0 && pthread_join(sleeper, &answer) == 0);
	CHECK(answer == PTHREAD_CANCELED && cleaned);
}
