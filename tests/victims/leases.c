/* Leases: one to read, one to write, which tell by a signal with the descriptor that somebody else opens the file, and one that keeps the
 * default signal. Nobody may have broken them until then. */
#include "victim.h"
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { READ, WRITE, SHARED, LEASES };

static const char *const names[LEASES] = { "leased/read", "leased/written", "leased/shared" };
static const int wanted[LEASES] = { F_RDLCK, F_WRLCK, F_RDLCK };
static int files[LEASES], told;
static volatile sig_atomic_t broken, of_file;

static void on_break(int number, siginfo_t *info, void *context)
{
	(void)context;
	broken = number, of_file = info->si_fd;
}

static void set_up(void)
{
	struct sigaction action = { .sa_sigaction = on_break, .sa_flags = SA_SIGINFO };
	told = SIGRTMIN + 3;
	CHECK(mkdir("leased", 0700) == 0);
	CHECK(sigaction(told, &action, NULL) == 0 && sigaction(SIGIO, &action, NULL) == 0);
	for (int each = 0; each < LEASES; each++) {
		int made = open(names[each], O_RDWR | O_CREAT | O_TRUNC, 0600);
		CHECK(made >= 0 && write(made, "content", 7) == 7);
		if (wanted[each] == F_RDLCK) {
			CHECK(close(made) == 0);
			made = open(names[each], O_RDONLY);
		}
		files[each] = made;
		CHECK(each == SHARED || fcntl(made, F_SETSIG, told) == 0);
		CHECK(fcntl(made, F_SETLEASE, wanted[each]) == 0);
	}
	CHECK(lseek(files[WRITE], 3, SEEK_SET) == 3);
}

static void hold(int step)
{
	for (int each = 0; each < LEASES; each++)
		CHECK(fcntl(files[each], F_GETLEASE) == wanted[each]);
	CHECK(!broken && lseek(files[WRITE], 0, SEEK_CUR) == 3);
	say("step %d", step);
}

static void verify(void)
{
	char text[8];
	for (int each = 0; each < LEASES; each++) {
		int status;
		broken = 0;
		/* Who opens it without waiting is refused, and the holder is told. */
		CHECK(open(names[each], O_WRONLY | O_NONBLOCK) == -1 && errno == EWOULDBLOCK);
		CHECK(broken == (each == SHARED ? SIGIO : told) && (each == SHARED || of_file == files[each]));
		CHECK(fcntl(files[each], F_SETLEASE, F_UNLCK) == 0);
		pid_t child = fork();
		if (child == 0)
			_exit(open(names[each], O_WRONLY | O_NONBLOCK) < 0);
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(pread(files[each], text, sizeof text, 0) == 7 && memcmp(text, "content", 7) == 0);
	}
}
