/* Processes that have their directory, root directory and umask in common (clone with CLONE_FS): what one changes at a step, the others
 * find. Of two others, which root alone makes, one has changed the root directory for both. */
#include "victim.h"
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct helper {
	pid_t pid;
	int asks[2], answers[2];
};

static struct helper sharing, grandchild, apart, jailed[2];

/* The child does `answer` to each byte, until there are no more. */
static int start(struct helper *helper, unsigned long flags, char (*answer)(char))
{
	char byte;
	CHECK(pipe2(helper->asks, O_CLOEXEC) == 0 && pipe2(helper->answers, O_CLOEXEC) == 0);
	helper->pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(helper->pid >= 0);
	if (helper->pid != 0)
		return 0;
	close(helper->asks[1]);
	while (read(helper->asks[0], &byte, 1) == 1) {
		byte = answer(byte);
		CHECK(write(helper->answers[1], &byte, 1) == 1);
	}
	_exit(6);
}

static char ask(struct helper *helper, char what)
{
	CHECK(write(helper->asks[1], &what, 1) == 1 && read(helper->answers[0], &what, 1) == 1);
	return what;
}

static void end(struct helper *helper)
{
	int status;
	close(helper->asks[1]);
	CHECK(waitpid(helper->pid, &status, 0) == helper->pid && WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

/* The name of the directory, which is one letter. */
static char here(void)
{
	char place[4096];
	CHECK(getcwd(place, sizeof place) != NULL);
	return place[strlen(place) - 1];
}

static char moves(char to)
{
	char path[] = {'.', '.', '/', to, 0};
	if (to != '?') {
		CHECK(chdir(path) == 0);
		umask((mode_t)to & 077);
	}
	return here();
}

static char tells_umask(char unused)
{
	(void)unused;
	mode_t mask = umask(0);
	umask(mask);
	return (char)mask;
}

/* Itself a parent of one that shares all of it. */
static char moves_through_child(char to)
{
	return ask(&grandchild, to);
}

static char enters_jail(char unused)
{
	(void)unused;
	if (access("/inner", F_OK) != 0)
		CHECK(chroot("jail") == 0 && chdir("/inner") == 0);
	return access("file", R_OK) == 0 ? 'y' : 'n';
}

static char enters_through_child(char what)
{
	char entered = ask(&jailed[1], what);
	return entered == 'y' && access("/inner/file", R_OK) == 0 && here() == 'r' ? 'y' : 'n';
}

static void set_up(void)
{
	CHECK(mkdir("places", 0755) == 0 && chdir("places") == 0);
	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("c", 0755) == 0);
	CHECK(mkdir("jail", 0755) == 0 && mkdir("jail/inner", 0755) == 0);
	int file = open("jail/inner/file", O_WRONLY | O_CREAT, 0644);
	CHECK(file >= 0 && close(file) == 0);
	if (geteuid() == 0) {
		/* One that shares nothing with this one, and a child that shares all with it. */
		struct helper *first = &jailed[0];
		CHECK(pipe2(first->asks, O_CLOEXEC) == 0 && pipe2(first->answers, O_CLOEXEC) == 0);
		first->pid = fork();
		CHECK(first->pid >= 0);
		if (first->pid == 0) {
			char byte;
			close(first->asks[1]);
			start(&jailed[1], CLONE_FS, enters_jail);
			while (read(first->asks[0], &byte, 1) == 1) {
				byte = enters_through_child(byte);
				CHECK(write(first->answers[1], &byte, 1) == 1);
			}
			end(&jailed[1]);
			_exit(6);
		}
		CHECK(ask(&jailed[0], '!') == 'y');
	}
	CHECK(chdir("a") == 0);
	CHECK(pipe2(sharing.asks, O_CLOEXEC) == 0 && pipe2(sharing.answers, O_CLOEXEC) == 0);
	sharing.pid = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(sharing.pid >= 0);
	if (sharing.pid == 0) {
		char byte;
		close(sharing.asks[1]);
		start(&grandchild, CLONE_FS, moves);
		while (read(sharing.asks[0], &byte, 1) == 1) {
			byte = moves_through_child(byte) == here() ? here() : '!';
			CHECK(write(sharing.answers[1], &byte, 1) == 1);
		}
		end(&grandchild);
		_exit(6);
	}
	umask(027);
	start(&apart, 0, tells_umask);
}

static void hold(int step)
{
	char to = (char)('a' + step % 3);
	CHECK(ask(&sharing, to) == to && here() == to);
	CHECK(tells_umask(0) == (to & 077));
	CHECK(ask(&apart, '?') == 027);
	to = (char)('a' + (step + 1) % 3);
	CHECK(moves(to) == to && ask(&sharing, '?') == to);
	if (jailed[0].pid != 0)
		CHECK(ask(&jailed[0], '?') == 'y');
	say("step %d %c", step, here());
}

static void verify(void)
{
	/* Each has the ends by which those before it are asked. */
	end(&apart);
	end(&sharing);
	if (jailed[0].pid != 0)
		end(&jailed[0]);
}
