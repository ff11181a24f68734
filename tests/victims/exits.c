/* Ends as KIND says: "code:N" by exit(N), "signal:N" by the signal's default action, "wait" only when told to. */
#include "victim.h"
#include <signal.h>

static volatile sig_atomic_t caught;

static void remember(int signal)
{
	caught = signal;
}

static void set_up(void)
{
	if (strcmp(kind, "catch") == 0) {
		struct sigaction action = { .sa_handler = remember };
		CHECK(sigaction(SIGINT, &action, NULL) == 0 && sigaction(SIGTERM, &action, NULL) == 0);
		CHECK(sigaction(SIGHUP, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
		CHECK(sigaction(SIGWINCH, &action, NULL) == 0);
	}
}

static void hold(int step)
{
	say("step %d", step);
	if (caught != 0) {
		say("caught %d", (int)caught);
		exit(caught);
	}
}

static void verify(void)
{
	if (strncmp(kind, "code:", 5) == 0)
		exit(atoi(kind + 5));
	if (strncmp(kind, "signal:", 7) == 0)
		raise(atoi(kind + 7));
}
