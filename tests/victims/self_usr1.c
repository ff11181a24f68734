/* A program that uses SIGUSR1 itself: it sends it to itself at each step and counts. */
#include "victim.h"
#include <signal.h>

static volatile sig_atomic_t received;

static void count(int signal)
{
	(void)signal;
	received++;
}

static void set_up(void)
{
	struct sigaction before, action = { .sa_handler = count };
	CHECK(sigaction(SIGUSR1, NULL, &before) == 0);
	/* A library that is loaded before us must not show: the default action is what exec leaves. */
	say("SIGUSR1 was %s", before.sa_handler == SIG_DFL ? "default" : "taken");
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static void hold(int step)
{
	CHECK(kill(getpid(), SIGUSR1) == 0);
	say("step %d received %d", step, (int)received);
	CHECK(received == step);
}

static void verify(void) {}
