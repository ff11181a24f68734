/* A program that holds one thing that a checkpoint does not support. KIND names it; the line "holds KIND WORD" says
 * what a refusal must mention: a descriptor, a process, an address. */
#include "netlink.h"
#include "victim.h"
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <linux/userfaultfd.h>
#include <stddef.h>

enum { PAGE = 4096 };

static pid_t child;
static int number = -1;
static void *place;
static timer_t timer;
static pthread_t main_thread;

static int is(const char *name)
{
	return strcmp(kind, name) == 0;
}

static void skip(const char *why)
{
	say("skipped: %s", why);
	_exit(EXIT_SKIPPED);
}

static void wait_for_death(void)
{
	for (;;)
		pause();
}

/* A child with the descriptor table of its parent. */
static int wait_in_common_memory(void *unused)
{
	(void)unused;
	wait_for_death();
	return 0;
}

static void make_sharing_child(void)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	child = clone(wait_in_common_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	CHECK(child >= 0);
	number = child;
}

/* A socket whose packets would be in memory that the program maps. */
static void make_packet_ring(void)
{
	struct tpacket_req ring = { .tp_block_size = PAGE, .tp_block_nr = 1, .tp_frame_size = PAGE / 2, .tp_frame_nr = 2 };
	number = socket(AF_PACKET, SOCK_RAW, 0);
	CHECK(number >= 0 && setsockopt(number, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring) == 0);
}

/* A group that is asked before a file is opened, which nobody here does. */
static void be_asked_for_leave(void)
{
	int file = open("guarded", O_RDONLY | O_CREAT, 0600);
	CHECK(file >= 0 && close(file) == 0);
	number = fanotify_init(FAN_CLASS_CONTENT | FAN_NONBLOCK, O_RDONLY);
	if (number < 0)
		skip("no fanotify");
	CHECK(fanotify_mark(number, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, "guarded") == 0);
}

/* A process with the directory of this one, whose child it is not: the process between the two has ended. */
static void make_sharing_cousin(void)
{
	int told[2], status;
	CHECK(pipe(told) == 0);
	pid_t between = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL);
	CHECK(between >= 0);
	if (between == 0) {
		pid_t cousin = (pid_t)syscall(SYS_clone, CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL);
		if (cousin == 0)
			wait_for_death();
		_exit(write(told[1], &cousin, sizeof cousin) == sizeof cousin ? 0 : 1);
	}
	CHECK(waitpid(between, &status, 0) == between && status == 0);
	CHECK(read(told[0], &number, sizeof number) == sizeof number && close(told[0]) == 0 && close(told[1]) == 0);
}

struct apart {
	int what;
	volatile int tid;
};

static void *be_apart(void *of)
{
	struct apart *apart = of;
	CHECK(unshare(apart->what) == 0);
	apart->tid = (int)syscall(SYS_gettid);
	wait_for_death();
	return NULL;
}

/* A thread that has for itself what is the process's. */
static void make_thread_apart(int what)
{
	static struct apart apart;
	pthread_t thread;
	apart.what = what;
	CHECK(pthread_create(&thread, NULL, be_apart, &apart) == 0);
	while (apart.tid == 0)
		usleep(1000);
	number = apart.tid;
}

static void make_posix_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	struct itimerspec time = { { 0, 0 }, { 1000, 0 } };
	CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0 && timer_settime(timer, 0, &time, NULL) == 0);
	number = (int)(intptr_t)timer;
}

static void queue_many_signals(void)
{
	sigset_t waiting;
	sigemptyset(&waiting);
	sigaddset(&waiting, SIGRTMIN);
	CHECK(pthread_sigmask(SIG_BLOCK, &waiting, NULL) == 0);
	for (int n = 0; n < 9000; n++)
		if (sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = n }) != 0)
			skip("not so many signals can be queued");
	number = getpid();
}

static void make_queue(void)
{
	char name[64];
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	snprintf(name, sizeof name, "ckpt-refused-%d", getpid());
	number = (int)syscall(SYS_mq_open, name, O_RDWR | O_CREAT | O_EXCL, 0600, NULL);
	if (number < 0)
		skip("no message queues");
	CHECK(syscall(SYS_mq_unlink, name) == 0);
	CHECK(syscall(SYS_mq_notify, number, &none) == 0);
}

static void *be_thread(void *opened)
{
	*(int *)opened = open("/proc/thread-self/comm", O_RDONLY);
	wait_for_death();
	return NULL;
}

static void open_file_of_a_thread(void)
{
	static volatile int opened = -1;
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, be_thread, (void *)&opened) == 0);
	while (opened < 0)
		usleep(1000);
	number = opened;
}

static struct io_uring_params ring;
static char *ring_memory;

static void make_io_uring(unsigned flags)
{
	ring.flags = flags;
	number = (int)syscall(SYS_io_uring_setup, 4, &ring);
	if (number < 0)
		skip("io_uring is switched off, or too old");
}

static struct io_uring_sqe *map_io_uring(unsigned flags)
{
	int rights = PROT_READ | PROT_WRITE;
	make_io_uring(flags);
	ring_memory = mmap(NULL, PAGE, rights, MAP_SHARED, number, IORING_OFF_SQ_RING);
	struct io_uring_sqe *requests = mmap(NULL, PAGE, rights, MAP_SHARED, number, IORING_OFF_SQES);
	CHECK(ring_memory != MAP_FAILED && requests != MAP_FAILED);
	return requests;
}

/* A request that waits for a pipe into which nobody writes. */
static void make_busy_io_uring(void)
{
	int ends[2];
	struct io_uring_sqe *request = map_io_uring(0);
	CHECK(pipe(ends) == 0);
	*request = (struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = ends[0], .poll32_events = POLLIN };
	*(uint32_t *)(void *)(ring_memory + ring.sq_off.tail) = 1;
	CHECK(syscall(SYS_io_uring_enter, number, 1, 0, 0, NULL, 0) == 1);
}

/* One that waits for a time, which nothing shows. */
static void make_timing_io_uring(void)
{
	static struct __kernel_timespec long_time = { 100000, 0 };
	struct io_uring_sqe *request = map_io_uring(0);
	*request = (struct io_uring_sqe){ .opcode = IORING_OP_TIMEOUT, .addr = (uintptr_t)&long_time, .len = 1 };
	*(uint32_t *)(void *)(ring_memory + ring.sq_off.tail) = 1;
	CHECK(syscall(SYS_io_uring_enter, number, 1, 0, 0, NULL, 0) == 1);
}

static void make_io_uring_with_eventfd(void)
{
	int events = eventfd(0, 0);
	map_io_uring(0);
	CHECK(events >= 0 && syscall(SYS_io_uring_register, number, IORING_REGISTER_EVENTFD, &events, 1) == 0);
}

static void make_io_uring_with_buffers(void)
{
	struct iovec buffer = { &ring, sizeof ring };
	map_io_uring(0);
	CHECK(syscall(SYS_io_uring_register, number, IORING_REGISTER_BUFFERS, &buffer, 1) == 0);
}

static void *register_ring(void *tid)
{
	struct io_uring_rsrc_update own = { .offset = -1U, .data = (uint64_t)number };
	CHECK(syscall(SYS_io_uring_register, number, IORING_REGISTER_RING_FDS, &own, 1) == 1);
	*(int *)tid = gettid();
	wait_for_death();
	return NULL;
}

/* Registered by a thread for itself. */
static void make_registered_io_uring(void)
{
	static volatile int tid;
	pthread_t thread;
	map_io_uring(0);
	CHECK(pthread_create(&thread, NULL, register_ring, (void *)&tid) == 0);
	while (tid == 0)
		usleep(1000);
	number = tid;
}

static void close_mapped_io_uring(void)
{
	struct stat opened;
	map_io_uring(0);
	CHECK(fstat(number, &opened) == 0 && close(number) == 0);
	number = (int)opened.st_ino;
}

/* The life of the stranger: holds descriptor 3 until process `other` ends. */
static void be_stranger(pid_t other)
{
	struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, other, 0), .events = POLLIN };
	close_range(0, 2, 0);
	if (end.fd >= 0)
		poll(&end, 1, -1);
	_exit(0);
}

/* A process that is not of our job, having been executed without its mark, holds descriptor `kept` alone, and ends when we do. */
static void leave_to_a_stranger(int kept)
{
	char self[16], *arguments[] = { "refused", self, "stranger", NULL }, *environment[] = { NULL };
	snprintf(self, sizeof self, "%d", getpid());
	pid_t middle = fork();
	CHECK(middle >= 0);
	if (middle == 0) {
		pid_t stranger = fork();
		if (stranger != 0)
			_exit(stranger < 0);
		/* So that there is nothing between `kept`, which becomes 3, and the pidfd, which becomes 4. */
		if (dup2(kept, 3) != 3 || fcntl(3, F_SETFD, 0) != 0)
			_exit(1);
		close_range(4, ~0u, 0);
		execve("/proc/self/exe", arguments, environment);
		_exit(1);
	}
	int status;
	CHECK(waitpid(middle, &status, 0) == middle && status == 0);
}

static void make_fifo_outside(void)
{
	CHECK(mkfifo("fifo", 0600) == 0);
	int reader = open("fifo", O_RDONLY | O_NONBLOCK);
	number = open("fifo", O_WRONLY);
	CHECK(reader >= 0 && number >= 0);
	leave_to_a_stranger(reader);
	CHECK(close(reader) == 0);
}

/* What a client has sent before it was accepted nobody can read. */
static void send_before_accepted(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof(sa_family_t);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 5) == 0);
	bytes = sizeof address;
	CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
	number = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(number >= 0 && connect(number, (struct sockaddr *)&address, bytes) == 0 && write(number, "x", 1) == 1);
}

/* More than the other end takes, which reads nothing. */
static void fill_connection(void)
{
	static char much[1 << 16];
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 5) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
	number = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(number >= 0 && connect(number, (struct sockaddr *)&address, bytes) == 0 && accept(listener, NULL, NULL) >= 0);
	while (send(number, much, sizeof much, MSG_DONTWAIT) > 0)
		;
	CHECK(errno == EAGAIN);
}

static void open_device(void)
{
	static const char *const devices[] = {
		"/dev/fuse", "/dev/loop-control", "/dev/kvm", "/dev/net/tun", "/dev/hpet", "/dev/cpu_dma_latency",
	};
	for (size_t i = 0; i < sizeof devices / sizeof *devices && number < 0; i++)
		number = open(devices[i], O_RDWR | O_CLOEXEC);
	if (number < 0)
		skip("no device that may be opened");
}

/* Lets everything pass. */
static void make_ebpf_filter(void)
{
	struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = -1 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr about = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insn_cnt = 2 };
	about.insns = (uintptr_t)code, about.license = (uintptr_t)"";
	int program = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &about, sizeof about);
	if (program < 0)
		skip("no eBPF");
	number = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(number >= 0 && setsockopt(number, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) == 0);
	close(program);
}

/* The description lives on in a message that waits to be received, so the set goes on watching what the closed number was. */
static void make_epoll_of_a_closed_descriptor(void)
{
	int ends[2], pair[2];
	struct iovec part = { "x", 1 };
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room };
	number = epoll_create1(0);
	CHECK(number >= 0 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	struct epoll_event event = { .events = EPOLLIN };
	CHECK(epoll_ctl(number, EPOLL_CTL_ADD, ends[0], &event) == 0);
	memcpy(CMSG_DATA(&control.header), &ends[0], sizeof ends[0]);
	CHECK(sendmsg(pair[0], &message, 0) == 1 && close(ends[0]) == 0);
}

static void make_protected_page(void)
{
	place = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(place != MAP_FAILED);
	int key = pkey_alloc(0, 0);
	if (key < 0)
		skip("no protection keys");
	CHECK(pkey_mprotect(place, PAGE, PROT_READ | PROT_WRITE, key) == 0);
}

/* Its userfaultfd is held by another process, so it is the mapping that must be noticed. */
static void make_page_with_faults_handled_outside(void)
{
	int faults = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
	if (faults < 0)
		skip("no userfaultfd");
	struct uffdio_api api = { .api = UFFD_API };
	CHECK(ioctl(faults, UFFDIO_API, &api) == 0);
	/* Between two pages of others, so that it has a line of its own in the list of mappings. */
	char *pages = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED);
	place = pages + PAGE;
	CHECK(mprotect(place, PAGE, PROT_READ | PROT_WRITE) == 0);
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)place, .len = PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	CHECK(ioctl(faults, UFFDIO_REGISTER, &range) == 0);
	leave_to_a_stranger(faults);
	CHECK(close(faults) == 0);
}

static void enter_seccomp(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { .len = 1, .filter = &allow };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
		skip("no seccomp filters");
	number = getpid();
}

/* Its calls of getpgid() would be for another process to decide. */
static void enter_asking_seccomp(void)
{
	struct sock_filter ask[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = sizeof ask / sizeof *ask, .filter = ask };
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	int asked = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
	if (asked < 0)
		skip("no seccomp filters that ask");
	close(asked);
	number = getpid();
}

static void leave_namespace(int flag)
{
	if (unshare(flag) != 0)
		skip("unsharing a namespace is not permitted");
	number = getpid();
}

static void have_deadlines(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attributes = { .size = 48, .policy = 6, .runtime = 10000000, .deadline = 100000000, .period = 100000000 };
	if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
		skip("SCHED_DEADLINE is not permitted");
	number = getpid();
}

/* A socket with a path from the root, and a child with another root. */
static void bind_where_roots_differ(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int told[2];
	char byte;
	CHECK(getcwd(name.sun_path, sizeof name.sun_path - 8) != NULL && pipe(told) == 0);
	strcat(name.sun_path, "/socket");
	int bound = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(bound >= 0 && bind(bound, (struct sockaddr *)&name, sizeof name) == 0);
	child = fork();
	if (child == 0) {
		byte = (char)(chroot(".") == 0);
		CHECK(write(told[1], &byte, 1) == 1);
		wait_for_death();
	}
	CHECK(read(told[0], &byte, 1) == 1);
	number = child;
	if (!byte)
		skip("changing the root is not permitted");
}

/* Does what main() would go on to do, once the main thread has ended. */
static void *go_on_without_main(void *argument)
{
	(void)argument;
	CHECK(pthread_join(main_thread, NULL) == 0);
	say("holds %s %d", kind, getpid());
	say("ready");
	for (int step = 1; step <= steps; step++) {
		say("step %d", step);
		sleep_ms(step_ms);
	}
	say("verified");
	_exit(EXIT_VERIFIED);
}

static void end_main_thread(void)
{
	pthread_t other;
	main_thread = pthread_self();
	CHECK(pthread_create(&other, NULL, go_on_without_main, NULL) == 0);
	pthread_exit(NULL);
}

/* Without a reservation it need not be known whether there is a page. It goes with this process. */
static void make_segment_of_huge_pages(void)
{
	int id = shmget(IPC_PRIVATE, 2 << 20, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600);
	if (id < 0)
		skip("no huge pages");
	place = shmat(id, NULL, 0);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0 && place != (void *)-1);
}

/* A terminal that only a process has open which does not belong to us any more. */
static void show_somebody_elses_terminal(void)
{
	number = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(number >= 0 && unlockpt(number) == 0);
	int slave = open(ptsname(number), O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	leave_to_a_stranger(slave);
	CHECK(close(slave) == 0);
}

static void set_up(void)
{
	if (is("stranger"))
		be_stranger(steps);
	step_ms = 20;
	if (is("packet_ring"))
		make_packet_ring();
	else if (is("ebpf_filter"))
		make_ebpf_filter();
	else if (is("unaccepted"))
		send_before_accepted();
	else if (is("full_connection"))
		fill_connection();
	else if (is("sharing_child"))
		make_sharing_child();
	else if (is("sharing_cousin"))
		make_sharing_cousin();
	else if (is("asked_for_leave"))
		be_asked_for_leave();
	else if (is("thread_with_descriptors"))
		make_thread_apart(CLONE_FILES);
	else if (is("thread_with_directory"))
		make_thread_apart(CLONE_FS);
	else if (is("inotify")) {
		number = inotify_init1(0);
		CHECK(inotify_add_watch(number, ".", IN_CREATE) > 0 && mkdir("created", 0700) == 0);
	} else if (is("netlink")) {
		number = open_netlink();
		ask_kernel(number);
	} else if (is("pidfd"))
		number = (int)syscall(SYS_pidfd_open, getppid(), 0);
	else if (is("userfaultfd")) {
		number = (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
		if (number < 0)
			skip("no userfaultfd");
	} else if (is("posix_timer"))
		make_posix_timer();
	else if (is("flood"))
		queue_many_signals();
	else if (is("descriptor_file"))
		CHECK((number = open("/proc/self/fdinfo/0", O_RDONLY)) >= 0);
	else if (is("thread_file"))
		open_file_of_a_thread();
	else if (is("unmapped_io_uring"))
		make_io_uring(0);
	else if (is("busy_io_uring"))
		make_busy_io_uring();
	else if (is("timing_io_uring"))
		make_timing_io_uring();
	else if (is("polled_io_uring"))
		map_io_uring(IORING_SETUP_SQPOLL);
	else if (is("single_io_uring"))
		map_io_uring(IORING_SETUP_SINGLE_ISSUER);
	else if (is("io_uring_with_eventfd"))
		make_io_uring_with_eventfd();
	else if (is("io_uring_with_buffers"))
		make_io_uring_with_buffers();
	else if (is("registered_io_uring"))
		make_registered_io_uring();
	else if (is("closed_io_uring"))
		close_mapped_io_uring();
	else if (is("fifo"))
		make_fifo_outside();
	else if (is("terminal"))
		show_somebody_elses_terminal();
	else if (is("mqueue_notify"))
		make_queue();
	else if (is("device"))
		open_device();
	else if (is("epoll"))
		make_epoll_of_a_closed_descriptor();
	else if (is("protection_key"))
		make_protected_page();
	else if (is("faults"))
		make_page_with_faults_handled_outside();
	else if (is("deadline"))
		have_deadlines();
	else if (is("seccomp"))
		enter_seccomp();
	else if (is("asking_filter"))
		enter_asking_seccomp();
	else if (is("mount_namespace"))
		leave_namespace(CLONE_NEWNS);
	else if (is("ipc_namespace"))
		leave_namespace(CLONE_NEWIPC);
	else if (is("time_namespace"))
		leave_namespace(CLONE_NEWTIME);
	else if (is("other_root"))
		bind_where_roots_differ();
	else if (is("leaderless"))
		end_main_thread();
	else if (is("huge_segment"))
		make_segment_of_huge_pages();
	else if (is("secure_bits")) {
		CHECK(prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) == 0);
		place = (void *)SECBIT_NO_SETUID_FIXUP;
	} else if (is("undumpable")) {
		CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
		number = getpid();
	}
	else
		FAIL("unknown kind %s", kind);
	CHECK(number >= 0 || place != NULL);
	say_what_is_held(place, number);
}

static void hold(int step)
{
	say("step %d", step);
}

static void verify(void)
{
	int status = 0;
	if (child > 0)
		CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
	if (is("sharing_cousin"))
		CHECK(kill(number, SIGKILL) == 0);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}
