/* Unix sockets of one job: pairs and connections with what lies unread in them, descriptors in flight, names and options; and a server of
 * its own that answers throughout. */
#include "doubling_server.h"
#include <signal.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { BIG = 150000, CLIENTS = 3 };

static int stream[2], datagrams[2], messages[2], ended[2], half[2];
static int listener, clients[CLIENTS], waiting, gone_listener, served_by_gone, client_of_gone;
static int named, sender, hidden, directed;
static int signalling[2];
static volatile int signalled, signalled_by;
static pid_t server;
static const char path[] = "./server";
static unsigned char buffer[BIG];

static socklen_t address(struct sockaddr_un *to, const char *name)
{
	memset(to, 0, sizeof *to);
	to->sun_family = AF_UNIX;
	if (name[0] == '@') {
		memcpy(to->sun_path + 1, name + 1, strlen(name) - 1);
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
	}
	strcpy(to->sun_path, name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1);
}

static int bound(int type, const char *name)
{
	struct sockaddr_un to;
	int made = socket(AF_UNIX, type, 0);
	socklen_t bytes = address(&to, name);
	unlink(name);
	CHECK(made >= 0 && bind(made, (struct sockaddr *)&to, bytes) == 0);
	return made;
}

static void join(int file, const char *name)
{
	struct sockaddr_un to;
	socklen_t bytes = address(&to, name);
	CHECK(connect(file, (struct sockaddr *)&to, bytes) == 0);
}

static int connected(int type, const char *name)
{
	int made = socket(AF_UNIX, type, 0);
	CHECK(made >= 0);
	join(made, name);
	return made;
}

static void check_name(int file, int of_peer, const char *name)
{
	struct sockaddr_un is, wanted;
	socklen_t bytes = sizeof is;
	CHECK((of_peer ? getpeername : getsockname)(file, (struct sockaddr *)&is, &bytes) == 0);
	socklen_t wanted_bytes = name[0] == 0 ? 2 : address(&wanted, name);
	wanted.sun_family = AF_UNIX;
	CHECK(bytes == wanted_bytes && memcmp(&is, &wanted, bytes) == 0);
}

static void send_files(int to, const char *text, const int *files, int count)
{
	char control[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec part = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control };
	message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(header), files, (size_t)count * sizeof(int));
	CHECK(sendmsg(to, &message, 0) == (ssize_t)strlen(text));
}

/* Receives what is there at once; the number of descriptors. */
static int receive_files(int from, const char *text, int *files)
{
	char control[CMSG_SPACE(8 * sizeof(int))], bytes[256];
	struct iovec part = { bytes, sizeof bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t count = recvmsg(from, &message, MSG_DONTWAIT);
	if (count != (ssize_t)strlen(text) || memcmp(bytes, text, strlen(text)) != 0)
		FAIL("received %zd bytes '%.*s' in place of '%s' (errno %d)", count, count > 0 ? (int)count : 0, bytes, text, errno);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header == NULL)
		return 0;
	CHECK(header->cmsg_type == SCM_RIGHTS);
	size_t bytes_of_files = header->cmsg_len - CMSG_LEN(0);
	memcpy(files, CMSG_DATA(header), bytes_of_files);
	return (int)(bytes_of_files / sizeof(int));
}

static void set_up_pairs(void)
{
	int pipe_ends[2], extra[2];
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, datagrams) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, messages) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ended) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, half) == 0);
	/* Sockets in flight that hold a pipe in flight, which nobody else has. */
	CHECK(pipe(pipe_ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, extra) == 0);
	CHECK(write(pipe_ends[1], "in the pipe", 11) == 11);
	send_files(extra[0], "a pipe", pipe_ends, 2);
	CHECK(write(stream[0], "plain ", 6) == 6);
	send_files(stream[0], "two sockets", extra, 2);
	CHECK(write(stream[0], " behind", 7) == 7);
	CHECK(close(extra[0]) == 0 && close(extra[1]) == 0 && close(pipe_ends[0]) == 0 && close(pipe_ends[1]) == 0);
	for (size_t i = 0; i < BIG; i++)
		buffer[i] = (unsigned char)mix(i);
	CHECK(write(stream[1], buffer, BIG) == BIG);
	CHECK(write(datagrams[0], "first", 5) == 5 && write(datagrams[0], "", 0) == 0 && write(datagrams[0], "third", 5) == 5);
	CHECK(write(messages[1], "one", 3) == 3 && write(messages[1], "second", 6) == 6);
	CHECK(write(ended[0], "last words", 10) == 10 && close(ended[0]) == 0);
	CHECK(write(half[0], "half", 4) == 4 && shutdown(half[0], SHUT_WR) == 0);
}

static void note_signal(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	signalled++;
	signalled_by = info->si_fd;
}

/* One end signals when there is something to read. */
static void set_up_signals(void)
{
	struct sigaction action = { .sa_sigaction = note_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, signalling) == 0 && sigaction(SIGRTMIN + 3, &action, NULL) == 0);
	CHECK(fcntl(signalling[0], F_SETOWN, getpid()) == 0 && fcntl(signalling[0], F_SETSIG, SIGRTMIN + 3) == 0);
	CHECK(fcntl(signalling[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
}

static void set_up(void)
{
	int on = 1, room = 100000;
	struct timeval patience = { 77, 0 };
	set_up_pairs();
	set_up_signals();
	/* A server in another process. */
	listener = bound(SOCK_STREAM, path);
	CHECK(chmod(path, 0620) == 0 && listen(listener, 5) == 0);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = connected(SOCK_STREAM, path);
	CHECK((server = fork()) >= 0);
	if (server == 0)
		serve(listener, clients, CLIENTS);
	/* One whose listener has been closed, and its file deleted. */
	gone_listener = bound(SOCK_SEQPACKET, "gone");
	CHECK(listen(gone_listener, 1) == 0);
	client_of_gone = connected(SOCK_SEQPACKET, "gone");
	CHECK((served_by_gone = accept(gone_listener, NULL, NULL)) >= 0);
	CHECK(close(gone_listener) == 0 && unlink("gone") == 0);
	/* Datagrams from one name to another, of which one is in no file system. */
	named = bound(SOCK_DGRAM, "named");
	char name[64];
	snprintf(name, sizeof name, "@ckpt-test-%d", getpid());
	hidden = bound(SOCK_DGRAM, name);
	join(hidden, "named");
	CHECK(send(hidden, "from the hidden one", 19, 0) == 19);
	directed = connected(SOCK_DGRAM, "named");
	sender = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un to;
	socklen_t bytes = address(&to, "named");
	CHECK(sendto(sender, "from nobody", 11, 0, (struct sockaddr *)&to, bytes) == 11);
	CHECK(setsockopt(named, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
	CHECK(setsockopt(named, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
	CHECK(setsockopt(hidden, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
	/* One that nobody accepts before the end. */
	for (int i = 0; i < CLIENTS; i++) {
		int number = 0;
		CHECK(write(clients[i], &number, sizeof number) == sizeof number);
		CHECK(read(clients[i], &number, sizeof number) == sizeof number);
	}
	waiting = connected(SOCK_STREAM, path);
}

static void hold(int step)
{
	int value;
	socklen_t bytes = sizeof value;
	struct stat file;
	for (int i = 0; i < CLIENTS; i++) {
		int number = step + i;
		CHECK(write(clients[i], &number, sizeof number) == sizeof number);
		CHECK(read(clients[i], &number, sizeof number) == sizeof number && number == 2 * (step + i));
		check_name(clients[i], 1, path);
		check_name(clients[i], 0, "");
	}
	check_name(listener, 0, path);
	check_name(served_by_gone, 0, "gone");
	check_name(client_of_gone, 1, "gone");
	check_name(hidden, 1, "named");
	check_name(directed, 1, "named");
	check_name(waiting, 1, path);
	CHECK(access("gone", F_OK) != 0 && stat(path, &file) == 0 && S_ISSOCK(file.st_mode) && (file.st_mode & 0777) == 0620);
	CHECK(getsockopt(named, SOL_SOCKET, SO_PASSCRED, &value, &bytes) == 0 && value == 1);
	CHECK(getsockopt(hidden, SOL_SOCKET, SO_SNDBUF, &value, &bytes) == 0 && value == 200000);
	struct timeval patience;
	bytes = sizeof patience;
	CHECK(getsockopt(named, SOL_SOCKET, SO_RCVTIMEO, &patience, &bytes) == 0 && patience.tv_sec == 77);
	CHECK(fcntl(stream[0], F_GETFD) == FD_CLOEXEC && (fcntl(datagrams[0], F_GETFL) & O_NONBLOCK) != 0);
	/* A message that goes round with each step. */
	CHECK(send(served_by_gone, &step, sizeof step, 0) == sizeof step);
	CHECK(recv(client_of_gone, &value, sizeof value, 0) == sizeof value && value == step);
	signalled = 0;
	CHECK(write(signalling[1], "s", 1) == 1 && signalled == 1 && signalled_by == signalling[0]);
	CHECK(read(signalling[0], &value, sizeof value) == 1 && fcntl(signalling[0], F_GETOWN) == getpid());
	say("step %d", step);
}

static void verify_names(void)
{
	struct sockaddr_un from;
	char text[64], name[64];
	socklen_t bytes = sizeof from;
	CHECK(recvfrom(named, text, sizeof text, 0, (struct sockaddr *)&from, &bytes) == 19);
	snprintf(name, sizeof name, "@ckpt-test-%d", getpid());
	struct sockaddr_un wanted;
	CHECK(bytes == address(&wanted, name) && memcmp(&from, &wanted, bytes) == 0);
	bytes = sizeof from;
	CHECK(recvfrom(named, text, sizeof text, 0, (struct sockaddr *)&from, &bytes) == 11 && bytes == 0);
	CHECK(send(hidden, "again", 5, 0) == 5 && recv(named, text, sizeof text, 0) == 5);
	CHECK(send(directed, "directed", 8, 0) == 8 && recv(named, text, sizeof text, 0) == 8);
	/* Who has waited is the next to be accepted. */
	CHECK(write(waiting, "late", 4) == 4);
	int late = accept(listener, NULL, NULL);
	CHECK(late >= 0 && read(late, text, sizeof text) == 4);
	int another = connected(SOCK_STREAM, path);
	CHECK(accept(listener, NULL, NULL) >= 0 && close(another) == 0);
}

static void verify(void)
{
	char text[64];
	int files[8], inner[8], status;
	CHECK(read(stream[1], text, 6) == 6 && memcmp(text, "plain ", 6) == 0);
	CHECK(receive_files(stream[1], "two sockets", files) == 2);
	CHECK(receive_files(stream[1], " behind", inner) == 0);
	CHECK(receive_files(files[1], "a pipe", inner) == 2);
	CHECK(read(inner[0], text, sizeof text) == 11 && memcmp(text, "in the pipe", 11) == 0);
	CHECK(write(files[0], "x", 1) == 1 && read(files[1], text, 1) == 1);
	for (size_t done = 0; done < BIG;) {
		ssize_t bytes = read(stream[0], buffer, BIG - done);
		CHECK(bytes > 0);
		for (ssize_t i = 0; i < bytes; i++)
			CHECK(buffer[i] == (unsigned char)mix(done + (size_t)i));
		done += (size_t)bytes;
	}
	CHECK(recv(stream[0], text, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(read(datagrams[1], text, 64) == 5 && read(datagrams[1], text, 64) == 0 && read(datagrams[1], text, 64) == 5);
	CHECK(memcmp(text, "third", 5) == 0 && read(datagrams[1], text, 64) == -1 && errno == EAGAIN);
	CHECK(read(messages[0], text, 64) == 3 && read(messages[0], text, 64) == 6 && memcmp(text, "second", 6) == 0);
	CHECK(read(ended[1], text, 64) == 10 && read(ended[1], text, 64) == 0);
	CHECK(send(ended[1], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(read(half[1], text, 64) == 4 && read(half[1], text, 64) == 0);
	CHECK(send(half[0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
	CHECK(write(half[1], "back", 4) == 4 && read(half[0], text, 64) == 4);
	verify_names();
	for (int i = 0; i < CLIENTS; i++)
		CHECK(close(clients[i]) == 0);
	CHECK(waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SERVED);
}
