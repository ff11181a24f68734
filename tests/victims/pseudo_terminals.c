/* Pseudo-terminals with both sides in the job: who is controlled by one, who has its foreground and who is stopped for it, and
 * what waits in each, unread. */
#include "victim.h"
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

/* Shared memory of all of them. */
struct common {
	volatile pid_t foreground, background;
	volatile int is_led, is_read, is_stopped;
};

static struct common *common;
/* One with a session; one in whose line all kinds of bytes wait; a raw one in packets; one that is hung up; one whose slave side is
 * closed behind what it has printed; one that was never opened; one that stands still. */
static int session, lines, lines_slave, packets, packets_slave, hung_up, closed, fresh, still, still_slave;
static pid_t leader;

static int new_master(int flags)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | flags);
	CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	return master;
}

static int open_slave(int master, int flags)
{
	int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | flags);
	CHECK(slave >= 0);
	return slave;
}

static void type_in(int master, const char *keys)
{
	CHECK(write(master, keys, strlen(keys)) == (ssize_t)strlen(keys));
}

/* Reads from a master until so much is there, and compares it. */
static void shows(int master, const char *text)
{
	char shown[4096];
	size_t bytes = 0, expected = strlen(text);
	while (bytes < expected) {
		ssize_t more = read(master, shown + bytes, expected - bytes);
		CHECK(more > 0);
		bytes += (size_t)more;
	}
	shown[bytes] = 0;
	if (strcmp(shown, text) != 0)
		FAIL("\"%s\" in place of \"%s\"", shown, text);
}

static void gives(int slave, const char *text)
{
	char line[256];
	ssize_t bytes = read(slave, line, sizeof line - 1);
	CHECK(bytes >= 0);
	line[bytes] = 0;
	if (strcmp(line, text) != 0)
		FAIL("\"%s\" in place of \"%s\"", line, text);
}

static int is_ready(int file, int event)
{
	struct pollfd polled = { file, (short)event, 0 };
	CHECK(poll(&polled, 1, 0) >= 0);
	return (polled.revents & event) != 0;
}

/* In the foreground: answers each line. */
static void be_foreground(void)
{
	char line[64];
	/* Who has given it the foreground is faster or not. */
	while (tcgetpgrp(STDIN_FILENO) != getpgrp())
		sleep_ms(1);
	common->is_read = 1;
	for (;;) {
		ssize_t bytes = read(STDIN_FILENO, line, sizeof line - 1);
		CHECK(bytes > 0);
		line[bytes - 1] = 0;
		int is_own = open("/dev/tty", O_RDWR);
		struct stat here, own;
		CHECK(is_own >= 0 && fstat(STDIN_FILENO, &here) == 0 && stat(ttyname(STDIN_FILENO), &own) == 0);
		CHECK(here.st_rdev == own.st_rdev && close(is_own) == 0);
		CHECK(tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetsid(STDIN_FILENO) == getppid());
		if (strcmp(line, "leave") == 0)
			_exit(6);
		dprintf(STDOUT_FILENO, "answer to %s\n", line);
	}
}

/* In the background: stopped as soon as it reads. */
static void be_background(void)
{
	char byte;
	common->is_stopped = 1;
	CHECK(read(STDIN_FILENO, &byte, 1) == 1);
	_exit(1);
}

static pid_t in_a_group(void (*life)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(setpgid(0, 0) == 0);
		life();
		_exit(1);
	}
	CHECK(setpgid(child, child) == 0 || errno == EACCES);
	return child;
}

/* What a shell is. */
static void be_leader(int slave)
{
	int status;
	close(session);
	CHECK(setsid() == getpid() && ioctl(slave, TIOCSCTTY, 0) == 0);
	for (int number = 0; number <= 2; number++)
		CHECK(dup2(slave, number) == number);
	int own = open("/dev/tty", O_RDWR | O_CLOEXEC);
	CHECK(own >= 0 && signal(SIGTTOU, SIG_IGN) != SIG_ERR && signal(SIGHUP, SIG_IGN) != SIG_ERR);
	CHECK((common->foreground = in_a_group(be_foreground)) > 0);
	CHECK(tcsetpgrp(own, common->foreground) == 0);
	CHECK((common->background = in_a_group(be_background)) > 0);
	CHECK(waitpid(common->background, &status, WUNTRACED) == common->background && WIFSTOPPED(status));
	CHECK(WSTOPSIG(status) == SIGTTIN);
	common->is_led = 1;
	CHECK(waitpid(common->foreground, &status, 0) == common->foreground);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 6);
	CHECK(tcsetpgrp(own, getpgrp()) == 0 && tcgetsid(own) == getpid());
	char name[32];
	snprintf(name, sizeof name, "/proc/self/fd/%d", own);
	char target[32] = "";
	CHECK(readlink(name, target, sizeof target - 1) > 0 && strcmp(target, "/dev/tty") == 0);
	gives(own, "to the leader\n");
	CHECK(kill(common->background, SIGKILL) == 0);
	CHECK(waitpid(common->background, &status, 0) == common->background && WIFSIGNALED(status));
	dprintf(own, "leaves\n");
	/* The master is closed. */
	while (read(own, name, 1) > 0)
		;
	_exit(4);
}

static void set_modes(int side, tcflag_t local, cc_t erase)
{
	struct termios modes;
	CHECK(tcgetattr(side, &modes) == 0);
	modes.c_lflag = local;
	modes.c_cc[VERASE] = erase;
	CHECK(cfsetspeed(&modes, B19200) == 0 && tcsetattr(side, TCSANOW, &modes) == 0);
}

static void set_up(void)
{
	step_ms = 15;
	common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(common != MAP_FAILED);
	session = new_master(0);
	int slave = open_slave(session, 0);
	CHECK((leader = fork()) >= 0);
	if (leader == 0)
		be_leader(slave);
	close(slave);

	lines = new_master(0);
	lines_slave = open_slave(lines, 0);
	set_modes(lines, ICANON | ECHO | ECHOE | ISIG | IEXTEN, '#');
	struct winsize size = { 33, 101, 5, 6 };
	CHECK(ioctl(lines, TIOCSWINSZ, &size) == 0 && ioctl(lines_slave, TIOCEXCL) == 0);
	CHECK(fchmod(lines_slave, 0640) == 0);
	CHECK(write(lines_slave, "printed ", 8) == 8);
	type_in(lines, "one\ntwo\n\004end\004half-typxx");

	packets = new_master(O_NONBLOCK);
	packets_slave = open_slave(packets, O_NONBLOCK);
	set_modes(packets, 0, 0);
	int on = 1;
	CHECK(ioctl(packets, TIOCPKT, &on) == 0);
	type_in(packets, "\003\004\r\n");
	CHECK(write(packets_slave, "packet", 6) == 6);

	int gone = new_master(0);
	hung_up = open_slave(gone, 0);
	close(gone);
	closed = new_master(0);
	slave = open_slave(closed, 0);
	CHECK(write(slave, "last words", 10) == 10 && close(slave) == 0);
	fresh = posix_openpt(O_RDWR | O_NOCTTY);
	still = new_master(0);
	still_slave = open_slave(still, O_NONBLOCK);
	CHECK(fresh >= 0 && tcflow(still_slave, TCOOFF) == 0);
	while (!common->is_led || !common->is_read)
		sleep_ms(1);
}

/* Whether a process is stopped, also when it is looked at in the moment of a checkpoint. */
static int is_stopped(pid_t pid)
{
	char name[32], text[512] = "", *state;
	snprintf(name, sizeof name, "/proc/%d/stat", pid);
	int file = open(name, O_RDONLY);
	CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
	CHECK((state = strrchr(text, ')')) != NULL);
	return state[2] == 'T' || state[2] == 't';
}

static void hold(int step)
{
	char typed[64], answer[128];
	snprintf(typed, sizeof typed, "question %d\n", step);
	snprintf(answer, sizeof answer, "question %d\r\nanswer to question %d\r\n", step, step);
	type_in(session, typed);
	shows(session, answer);
	pid_t group = 0;
	CHECK(ioctl(session, TIOCGPGRP, &group) == 0 && group == common->foreground && tcgetsid(session) == leader);
	/* Behind a checkpoint it stands still again after a moment. */
	for (int tries = 0; !is_stopped(common->background); tries++) {
		CHECK(tries < 1000);
		sleep_ms(1);
	}
	CHECK(getpgid(common->background) == common->background);

	int number = 0, unread = 0, on = 0;
	struct winsize size;
	struct termios modes;
	CHECK(ioctl(lines, TIOCGWINSZ, &size) == 0 && size.ws_row == 33 && size.ws_col == 101 && size.ws_ypixel == 6);
	CHECK(tcgetattr(lines_slave, &modes) == 0 && modes.c_cc[VERASE] == '#' && cfgetospeed(&modes) == B19200);
	CHECK(modes.c_lflag == (ICANON | ECHO | ECHOE | ISIG | IEXTEN));
	CHECK(ioctl(lines_slave, TIOCGEXCL, &on) == 0 && on == 1);
	CHECK(ioctl(lines_slave, FIONREAD, &unread) == 0 && unread == 11);
	struct stat status;
	CHECK(ioctl(lines, TIOCGPTN, &number) == 0 && fstat(lines_slave, &status) == 0);
	CHECK((status.st_mode & 0777) == 0640 && status.st_rdev % 256 == (dev_t)(number % 256));
	CHECK(strcmp(ptsname(lines), ttyname(lines_slave)) == 0);
	CHECK(ioctl(packets, TIOCGPKT, &on) == 0 && on == 1 && (fcntl(packets, F_GETFL) & O_NONBLOCK) != 0);
	CHECK(ioctl(packets_slave, FIONREAD, &unread) == 0 && unread == 4);
	CHECK(is_ready(hung_up, POLLHUP) && ioctl(hung_up, TIOCGWINSZ, &size) == -1 && errno == EIO);
	CHECK(is_ready(closed, POLLHUP) && is_ready(closed, POLLIN));
	CHECK(!is_ready(fresh, POLLHUP) && !is_ready(fresh, POLLIN));
	CHECK(ioctl(fresh, TIOCGPTLCK, &on) == 0 && on == 1);
	CHECK(!is_ready(still_slave, POLLOUT) && write(still_slave, "x", 1) == -1 && errno == EAGAIN);
	say("step %d", step);
}

static void verify(void)
{
	char bytes[64];
	int status;
	type_in(lines, "##ed\n");
	gives(lines_slave, "one\n");
	gives(lines_slave, "two\n");
	gives(lines_slave, "");
	gives(lines_slave, "end");
	gives(lines_slave, "half-typed\n");
	shows(lines, "printed one\r\ntwo\r\nendhalf-typxx\b \b\b \bed\r\n");
	CHECK(read(packets, bytes, sizeof bytes) == 7 && memcmp(bytes, "\0packet", 7) == 0);
	gives(packets_slave, "\003\004\n\n");
	CHECK(read(hung_up, bytes, 1) == 0 && write(hung_up, "x", 1) == -1 && errno == EIO);
	CHECK(read(closed, bytes, sizeof bytes) == 10 && memcmp(bytes, "last words", 10) == 0);
	CHECK(read(closed, bytes, 1) == -1 && errno == EIO);
	CHECK(tcflow(still_slave, TCOON) == 0 && write(still_slave, "x", 1) == 1);
	shows(still, "x");
	type_in(session, "leave\n");
	shows(session, "leave\r\n");
	type_in(session, "to the leader\n");
	shows(session, "to the leader\r\nleaves\r\n");
	CHECK(close(session) == 0);
	CHECK(waitpid(leader, &status, 0) == leader && WIFEXITED(status) && WEXITSTATUS(status) == 4);
}
