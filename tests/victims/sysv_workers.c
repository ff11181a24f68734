/* A System V semaphore and a queue that only workers use, which have ended when anybody looks: the process that has made them never does. */
#include "victim.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

static int semaphores, queue;

static void work(void)
{
	struct sembuf up = { 1, 1, 0 };
	struct {
		long type;
		char text[5];
	} letter = { 3, "done" };
	int status;
	pid_t worker = fork();
	if (worker == 0)
		_exit(semop(semaphores, &up, 1) != 0 || msgsnd(queue, &letter, sizeof letter.text, 0) != 0);
	CHECK(worker > 0 && waitpid(worker, &status, 0) == worker && status == 0);
}

static void set_up(void)
{
	/* One that is not used at all, too. */
	CHECK((semaphores = semget(IPC_PRIVATE, 2, IPC_CREAT | 0600)) >= 0);
	CHECK((queue = msgget(IPC_PRIVATE, IPC_CREAT | 0600)) >= 0);
}

static void hold(int step)
{
	struct msqid_ds about;
	work();
	CHECK(msgctl(queue, IPC_STAT, &about) == 0);
	int first = semctl(semaphores, 0, GETVAL), second = semctl(semaphores, 1, GETVAL);
	if (first != 0 || second != step || (int)about.msg_qnum != step)
		FAIL("step %d: semaphores are %d %d, %d messages", step, first, second, (int)about.msg_qnum);
	say("step %d", step);
}

static void verify(void)
{
	CHECK(semctl(semaphores, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
}
