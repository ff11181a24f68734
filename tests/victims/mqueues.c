/* POSIX message queues: with a name and without, waited for by one process and written to by another. */
#include "victim.h"
#include <mqueue.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MESSAGES = 5, BYTES = 100, MODE = 0620 };
static int questions, answers, nameless, sender, filled;
static char name[64];
static pid_t child;

/* The names that the kernel takes have no slash. */
static int open_queue(const char *queue, int flags)
{
	struct mq_attr attributes = { .mq_maxmsg = MESSAGES, .mq_msgsize = BYTES };
	int number = (int)syscall(SYS_mq_open, queue, flags, 0600, &attributes);
	if (number < 0 && errno == ENOSYS) {
		say("skipped: no message queues");
		_exit(EXIT_SKIPPED);
	}
	CHECK(number >= 0);
	return number;
}

static void put(int queue, const char *text, unsigned priority)
{
	CHECK(syscall(SYS_mq_timedsend, queue, text, strlen(text), priority, NULL) == 0);
}

static unsigned expect(int queue, const char *text)
{
	char bytes[BYTES + 1] = "";
	unsigned priority = 0;
	CHECK(syscall(SYS_mq_timedreceive, queue, bytes, BYTES, &priority, NULL) == (long)strlen(text));
	CHECK(strcmp(bytes, text) == 0);
	return priority;
}

static void be_child(void)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		char bytes[BYTES];
		long count = syscall(SYS_mq_timedreceive, questions, bytes, BYTES, NULL, NULL);
		CHECK(count > 0);
		if (bytes[0] == 'e')
			_exit(4);
		CHECK(syscall(SYS_mq_timedsend, answers, bytes, count, 2, NULL) == 0);
	}
}

static void set_up(void)
{
	snprintf(name, sizeof name, "ckpt-victim-%d", getpid());
	questions = open_queue(name, O_RDWR | O_CREAT | O_EXCL);
	CHECK(fchmod(questions, MODE) == 0);
	sender = open_queue(name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	char other[80];
	snprintf(other, sizeof other, "%s-other", name);
	answers = open_queue(other, O_RDWR | O_CREAT | O_EXCL);
	CHECK(syscall(SYS_mq_unlink, other) == 0);
	nameless = open_queue(other, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK);
	CHECK(syscall(SYS_mq_unlink, other) == 0);
	/* As many as fit in, which nobody receives before the end. */
	filled = open_queue(other, O_RDWR | O_CREAT | O_EXCL);
	CHECK(syscall(SYS_mq_unlink, other) == 0);
	put(filled, "second", 3);
	put(filled, "first", 7);
	put(filled, "third", 3);
	put(filled, "", 0);
	put(filled, "last", 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
}

static void hold(int step)
{
	struct stat about;
	struct mq_attr attributes;
	char byte[BYTES];
	put(sender, "question", 1);
	CHECK(expect(answers, "question") == 2);
	CHECK(fstat(questions, &about) == 0 && (about.st_mode & 07777) == MODE && about.st_uid == geteuid());
	CHECK(syscall(SYS_mq_getsetattr, nameless, NULL, &attributes) == 0);
	CHECK(attributes.mq_maxmsg == MESSAGES && attributes.mq_msgsize == BYTES && attributes.mq_flags == O_NONBLOCK);
	CHECK(syscall(SYS_mq_getsetattr, questions, NULL, &attributes) == 0 && attributes.mq_flags == 0);
	CHECK(syscall(SYS_mq_timedreceive, nameless, byte, BYTES, NULL, NULL) == -1 && errno == EAGAIN);
	CHECK((fcntl(sender, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_WRONLY | O_NONBLOCK));
	CHECK(fcntl(sender, F_GETFD) == FD_CLOEXEC);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	CHECK(expect(filled, "first") == 7 && expect(filled, "second") == 3 && expect(filled, "third") == 3);
	CHECK(expect(filled, "") == 0 && expect(filled, "last") == 0);
	put(nameless, "low", 1);
	put(nameless, "high", 9);
	put(nameless, "low too", 1);
	CHECK(expect(nameless, "high") == 9);
	expect(nameless, "low");
	expect(nameless, "low too");
	put(sender, "end", 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 4);
	int again = open_queue(name, O_RDONLY);
	put(questions, "by name", 0);
	expect(again, "by name");
	CHECK(syscall(SYS_mq_unlink, name) == 0);
}
