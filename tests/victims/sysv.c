/* System V shared memory, semaphores and message queues, used by two processes and waited for by one. Under the KIND
 * "transient" one segment goes with its last user. */
#include "victim.h"
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>

enum { PAGE = 4096, BYTES = 5 * PAGE + 100, SEMAPHORES = 3, ASK = 0, ANSWER = 1, KEPT = 2, QUESTION = 7, REPLY = 8 };

struct letter {
	long type;
	char text[64];
};

static int common, lasting, detached, parted, semaphores, queue;
static unsigned char *at, *readable, *marked, *pieces;
static uint64_t sum;
static pid_t child;
static key_t key;

static void change(int number, int by)
{
	struct sembuf operation = { (unsigned short)number, (short)by, 0 };
	CHECK(semop(semaphores, &operation, 1) == 0);
}

static void post(long type, const char *text)
{
	struct letter letter = { .type = type };
	size_t bytes = strlen(text);
	memcpy(letter.text, text, bytes);
	CHECK(msgsnd(queue, &letter, bytes, 0) == 0);
}

static void expect(long type, long got, const char *text)
{
	struct letter letter = { 0 };
	ssize_t bytes = msgrcv(queue, &letter, sizeof letter.text, type, 0);
	CHECK(bytes == (ssize_t)strlen(text) && letter.type == got && strcmp(letter.text, text) == 0);
}

/* Waits on a semaphore, counts in shared memory, waits for a message: no call may come back for any other reason. */
static void be_child(void)
{
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	for (;;) {
		change(ASK, -1);
		at[0]++;
		change(ANSWER, 1);
		struct letter letter = { 0 };
		CHECK(msgrcv(queue, &letter, sizeof letter.text, QUESTION, 0) == 8);
		if (strcmp(letter.text, "the end.") == 0)
			_exit(6);
		post(REPLY, letter.text);
	}
}

static int is_transient(void)
{
	return strcmp(kind, "transient") == 0;
}

static void *attached(int id, int flags)
{
	void *place = shmat(id, NULL, flags);
	CHECK(place != (void *)-1);
	return place;
}

static void set_up(void)
{
	key = (key_t)(0x40000000 | getpid() << 4);
	common = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0640);
	int has_none = common < 0 && errno == ENOSYS;
	lasting = shmget(key, PAGE, IPC_CREAT | IPC_EXCL | 0600);
	detached = shmget(key + 1, 2 * PAGE, IPC_CREAT | IPC_EXCL | 0600);
	parted = shmget(IPC_PRIVATE, 6 * PAGE, IPC_CREAT | 0600);
	semaphores = semget(key, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0604);
	queue = msgget(key, IPC_CREAT | IPC_EXCL | 0660);
	if (has_none) {
		say("skipped: no System V objects");
		_exit(EXIT_SKIPPED);
	}
	CHECK(common >= 0 && lasting >= 0 && detached >= 0 && parted >= 0 && semaphores >= 0 && queue >= 0);
	at = attached(common, 0);
	readable = attached(common, SHM_RDONLY);
	for (int i = 1; i < BYTES; i++)
		at[i] = (unsigned char)mix((uint64_t)i);
	sum = sum_of(at + 1, BYTES - 1);
	marked = attached(lasting, 0);
	strcpy((char *)marked, "marked");
	/* Goes with its last user. */
	if (is_transient())
		CHECK(shmctl(lasting, IPC_RMID, NULL) == 0);
	char *once = attached(detached, 0);
	strcpy(once + PAGE, "nobody has attached it");
	CHECK(shmdt(once) == 0);
	pieces = attached(parted, 0);
	for (int page = 0; page < 6; page++)
		pieces[page * PAGE] = (unsigned char)(page + 1);
	CHECK(munmap(pieces + PAGE, PAGE) == 0 && mprotect(pieces + 3 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mmap(pieces + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      pieces + PAGE);
	pieces[PAGE] = 99;
	CHECK(semctl(semaphores, ASK, SETVAL, 0) == 0 && semctl(semaphores, KEPT, SETVAL, 1234) == 0);
	post(1, "first");
	post(3, "third type");
	post(2, "");
	post(1, "second of the first type");
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		be_child();
}

static void hold(int step)
{
	struct shmid_ds memory;
	struct msqid_ds messages;
	unsigned char before = at[0];
	change(ASK, 1);
	change(ANSWER, -1);
	CHECK(at[0] == (unsigned char)(before + 1) && readable[0] == at[0]);
	post(QUESTION, "question");
	expect(REPLY, REPLY, "question");
	CHECK(sum_of(at + 1, BYTES - 1) == sum && sum_of(readable + 1, BYTES - 1) == sum);
	/* The memory of a process that is just being written is attached once more. */
	CHECK(shmctl(common, IPC_STAT, &memory) == 0 && memory.shm_segsz == BYTES && memory.shm_nattch >= 4);
	CHECK((memory.shm_perm.mode & 07777) == 0640 && memory.shm_perm.cuid == geteuid());
	CHECK(shmctl(lasting, IPC_STAT, &memory) == 0 && !(memory.shm_perm.mode & SHM_DEST) == !is_transient());
	CHECK(semctl(semaphores, KEPT, GETVAL) == 1234 && semget(key, SEMAPHORES, 0) == semaphores);
	CHECK(msgctl(queue, IPC_STAT, &messages) == 0 && messages.msg_qnum == 4 && msgget(key, 0) == queue);
	CHECK((messages.msg_perm.mode & 0777) == 0660);
	CHECK(strcmp((char *)marked, "marked") == 0 && shmget(key + 1, 0, 0) == detached);
	CHECK(pieces[0] == 1 && pieces[PAGE] == 99 && pieces[2 * PAGE] == 3 && pieces[3 * PAGE] == 4 && pieces[5 * PAGE] == 6);
	say("step %d", step);
}

static void verify(void)
{
	int status;
	struct shmid_ds memory;
	change(ASK, 1);
	change(ANSWER, -1);
	post(QUESTION, "the end.");
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 6);
	expect(3, 3, "third type");
	expect(0, 1, "first");
	expect(-9, 1, "second of the first type");
	expect(0, 2, "");
	char *again = attached(detached, 0);
	CHECK(strcmp(again + PAGE, "nobody has attached it") == 0);
	unsigned char *whole = attached(parted, 0);
	CHECK(whole[PAGE] == 2 && whole[4 * PAGE] == 5);
	pieces[2 * PAGE] = 77;
	CHECK(whole[2 * PAGE] == 77 && mprotect(pieces + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(mprotect(readable, PAGE, PROT_READ | PROT_WRITE) == -1 && errno == EACCES);
	CHECK(shmdt(readable) == 0 && shmdt(at) == 0 && shmctl(common, IPC_STAT, &memory) == 0 && memory.shm_nattch == 0);
	CHECK(shmdt(marked) == 0 && shmctl(lasting, IPC_RMID, NULL) == (is_transient() ? -1 : 0));
	CHECK(shmctl(lasting, IPC_STAT, &memory) == -1 && errno == EINVAL);
	CHECK(shmctl(common, IPC_RMID, NULL) == 0 && shmctl(detached, IPC_RMID, NULL) == 0);
	CHECK(shmctl(parted, IPC_RMID, NULL) == 0 && semctl(semaphores, 0, IPC_RMID) == 0);
	CHECK(msgctl(queue, IPC_RMID, NULL) == 0);
}
