/* Processes that have their directory, root directory and umask in common (clone with CLONE_FS): what one changes at a step, the others
 * find. Of two others, which root alone makes, one has changed the root directory for both. */
#include "victim.h"
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct helper {
	char (*answer)(char);
	unsigned long flags;
	/* A child of its own that shares all with it, if it has one. */
	struct helper *below;
	pid_t pid;
	int asks[2], answers[2];
};

static void end(struct helper *helper)
{
	int status;
	close(helper->asks[1]);
	CHECK(waitpid(helper->pid, &status, 0) == helper->pid && WIFEXITED(status) && WEXITSTATUS(status) == 6);
}

/* The child answers each byte, until there are no more. */
static void start(struct helper *helper)
{
	char byte;
	CHECK(pipe2(helper->asks, O_CLOEXEC) == 0 && pipe2(helper->answers, O_CLOEXEC) == 0);
	helper->pid = (pid_t)syscall(SYS_clone, helper->flags | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(helper->pid >= 0);
	if (helper->pid != 0)
		return;
	close(helper->asks[1]);
	if (helper->below != NULL)
		start(helper->below);
	while (read(helper->asks[0], &byte, 1) == 1) {
		byte = helper->answer(byte);
		CHECK(write(helper->answers[1], &byte, 1) == 1);
	}
	if (helper->below != NULL)
		end(helper->below);
	_exit(6);
}

static char ask(struct helper *helper, char what)
{
	CHECK(write(helper->asks[1], &what, 1) == 1 && read(helper->answers[0], &what, 1) == 1);
	return what;
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

static char enters_jail(char unused)
{
	(void)unused;
	if (access("/inner", F_OK) != 0)
		CHECK(chroot("jail") == 0 && chdir("/inner") == 0);
	return access("file", R_OK) == 0 ? 'y' : 'n';
}

static struct helper grandchild = { moves, CLONE_FS, NULL, 0, { 0 }, { 0 } };
static struct helper in_jail = { enters_jail, CLONE_FS, NULL, 0, { 0 }, { 0 } };

static char moves_through_child(char to)
{
	char moved = ask(&grandchild, to);
	return moved == here() ? moved : '!';
}

static char enters_through_child(char what)
{
	char entered = ask(&in_jail, what);
	return entered == 'y' && access("/inner/file", R_OK) == 0 && here() == 'r' ? 'y' : 'n';
}

static struct helper sharing = { moves_through_child, CLONE_FS, &grandchild, 0, { 0 }, { 0 } };
static struct helper apart = { tells_umask, 0, NULL, 0, { 0 }, { 0 } };
/* It shares nothing with the process that everything begins with. */
static struct helper jailed = { enters_through_child, 0, &in_jail, 0, { 0 }, { 0 } };

static void set_up(void)
{
	CHECK(mkdir("places", 0755) == 0 && chdir("places") == 0);
	CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && mkdir("c", 0755) == 0);
	CHECK(mkdir("jail", 0755) == 0 && mkdir("jail/inner", 0755) == 0);
	int file = open("jail/inner/file", O_WRONLY | O_CREAT, 0644);
	CHECK(file >= 0 && close(file) == 0);
	if (geteuid() == 0) {
		start(&jailed);
		CHECK(ask(&jailed, '!') == 'y');
	}
	CHECK(chdir("a") == 0);
	start(&sharing);
	umask(027);
	start(&apart);
}

static void hold(int step)
{
	char to = (char)('a' + step % 3);
	CHECK(ask(&sharing, to) == to && here() == to);
	CHECK(tells_umask(0) == (to & 077));
	CHECK(ask(&apart, '?') == 027);
	to = (char)('a' + (step + 1) % 3);
	CHECK(moves(to) == to && ask(&sharing, '?') == to);
	if (jailed.pid != 0)
		CHECK(ask(&jailed, '?') == 'y');
	say("step %d %c", step, here());
}

static void verify(void)
{
	/* Each has the ends by which those before it are asked. */
	end(&apart);
	end(&sharing);
	if (jailed.pid != 0)
		end(&jailed);
}
