/* A program that works at a terminal: says which keys it reads, the size and the modes of the terminal, and what is
 * asked by the keys m (modes), s (size), g (job control) and q (puts the modes back and ends).
 *
 * KIND: "cooked" leaves the terminal as it is; "raw" makes it raw; "cbreak" the same but for ^C and ^Z. With "-tty" behind
 * it, keys are read from /dev/tty. Reports are numbered, so that a test knows an answer from an earlier one. */
#include "victim.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

static struct termios before;
static int keys = STDIN_FILENO;
static int reports;
static volatile sig_atomic_t resized;

static void remember(int signal)
{
	(void)signal;
	resized = 1;
}

static void set_up(void)
{
	struct sigaction action = { .sa_handler = remember };
	CHECK(sigaction(SIGWINCH, &action, NULL) == 0);
	if (strstr(kind, "-tty") != NULL) {
		int opened = open("/dev/tty", O_RDWR);
		CHECK(opened >= 0 && (keys = fcntl(opened, F_DUPFD, 10)) == 10 && close(opened) == 0);
	}
	/* A pipe or /dev/null has no modes. */
	if (tcgetattr(keys, &before) != 0 || strncmp(kind, "cooked", 6) == 0)
		return;
	struct termios raw = before;
	cfmakeraw(&raw);
	if (strncmp(kind, "cbreak", 6) == 0)
		raw.c_lflag |= ISIG;
	CHECK(tcsetattr(keys, TCSADRAIN, &raw) == 0);
}

static void report_size(void)
{
	struct winsize size = { 0 };
	if (ioctl(keys, TIOCGWINSZ, &size) != 0)
		say("%d size none", ++reports);
	else
		say("%d size %d %d", ++reports, size.ws_row, size.ws_col);
}

static void report_modes(void)
{
	struct termios now;
	if (tcgetattr(keys, &now) != 0)
		say("%d modes none", ++reports);
	else
		say("%d modes %s %s %s %s", ++reports, now.c_lflag & ICANON ? "lines" : "keys",
		    now.c_lflag & ECHO ? "echo" : "silent", now.c_lflag & ISIG ? "signals" : "bytes",
		    now.c_oflag & OPOST ? "output" : "as-is");
}

static void report_job(void)
{
	char group[32] = "none";
	if (tcgetpgrp(keys) >= 0)
		strcpy(group, tcgetpgrp(keys) == getpgrp() ? "foreground" : "background");
	int opened = open("/dev/tty", O_RDWR | O_NOCTTY);
	say("%d job %s %s", ++reports, group, opened >= 0 ? "own" : "no-tty");
	if (opened >= 0)
		close(opened);
}

static void press(unsigned char key)
{
	if (key == '\n' || key == '\r')
		return;
	if (key == 'm')
		report_modes();
	else if (key == 's')
		report_size();
	else if (key == 'g')
		report_job();
	else if (key == 'q') {
		tcsetattr(keys, TCSADRAIN, &before);
		say("bye");
		exit(5);
	} else
		say("%d key %d", ++reports, key);
}

static void hold(int step)
{
	if (step % 10 == 0 && strstr(kind, "ticks") != NULL)
		say("tick %d", step / 10);
	if (resized) {
		resized = 0;
		say("resized");
		report_size();
	}
	struct pollfd polled = { .fd = keys, .events = POLLIN };
	unsigned char key;
	while (poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0 && read(keys, &key, 1) == 1)
		press(key);
}

static void verify(void)
{
}
