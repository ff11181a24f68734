/* Many threads, each of which ends the program as soon as the file "go" is there: after a restart, while others are still
 * being let go. */
#include "victim.h"

enum { THREADS = 32, EXIT_AT_ONCE = 9, PAUSE_US = 50 };

static void *watch(void *nothing)
{
	while (access("go", F_OK) != 0)
		usleep(PAUSE_US);
	_exit(EXIT_AT_ONCE);
	return nothing;
}

static void set_up(void)
{
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	}
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
}
