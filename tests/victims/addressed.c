/* Sockets at one address of this host, and connections between two processes over it: `addressed STEPS ADDRESS`. Each step says which
 * address that is, as each of the sockets has it. */
#include "victim.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static struct sockaddr_storage own;
static socklen_t own_bytes;
static int listener, second, client, waiting, bound, datagrams, sender;

static struct sockaddr_storage name_of(int file)
{
	struct sockaddr_storage name = { 0 };
	socklen_t bytes = sizeof name;
	CHECK(getsockname(file, (struct sockaddr *)&name, &bytes) == 0);
	return name;
}

static struct sockaddr_storage peer_of(int file)
{
	struct sockaddr_storage name = { 0 };
	socklen_t bytes = sizeof name;
	CHECK(getpeername(file, (struct sockaddr *)&name, &bytes) == 0);
	return name;
}

static const char *host_of(const struct sockaddr_storage *name)
{
	static char host[NI_MAXHOST];
	CHECK(getnameinfo((const struct sockaddr *)name, own_bytes, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0);
	return host;
}

/* All bytes: port and interface, too. */
static int is_same(struct sockaddr_storage one, struct sockaddr_storage other)
{
	return memcmp(&one, &other, own_bytes) == 0;
}

static int at_own(int type, const struct sockaddr_storage *name)
{
	int file = socket(own.ss_family, type, 0), on = 1;
	CHECK(file >= 0 && setsockopt(file, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0);
	CHECK(bind(file, (const struct sockaddr *)name, own_bytes) == 0);
	return file;
}

static int connected(int type, struct sockaddr_storage to)
{
	int file = socket(own.ss_family, type, 0);
	CHECK(file >= 0 && connect(file, (struct sockaddr *)&to, own_bytes) == 0);
	return file;
}

/* The other process of the connection: gives back what it gets. */
static void serve(int file)
{
	char text[64];
	ssize_t bytes;
	while ((bytes = read(file, text, sizeof text)) > 0)
		CHECK(write(file, text, (size_t)bytes) == bytes);
	_exit(bytes != 0);
}

static void set_up(void)
{
	struct addrinfo wish = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *found;
	CHECK(getaddrinfo(kind, "0", &wish, &found) == 0);
	own_bytes = found->ai_addrlen;
	memcpy(&own, found->ai_addr, own_bytes);

	listener = at_own(SOCK_STREAM, &own);
	struct sockaddr_storage name = name_of(listener);
	CHECK(listen(listener, 5) == 0);
	client = connected(SOCK_STREAM, name);
	int accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0);
	pid_t parent = getpid(), child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(2);
		close(client);
		serve(accepted);
	}
	close(accepted);
	/* Two that share the port, one that waits to be accepted, one that has an address and nothing else. */
	second = at_own(SOCK_STREAM, &name);
	waiting = connected(SOCK_STREAM, name);
	CHECK(listen(second, 5) == 0);
	bound = at_own(SOCK_STREAM, &own);

	datagrams = at_own(SOCK_DGRAM, &own);
	sender = connected(SOCK_DGRAM, name_of(datagrams));
	CHECK(write(sender, "early", 5) == 5);
	if (own.ss_family == AF_INET) {
		struct in_addr interface = ((struct sockaddr_in *)&own)->sin_addr;
		CHECK(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) == 0);
	} else if (((struct sockaddr_in6 *)&own)->sin6_scope_id > 0) {
		int interface = (int)((struct sockaddr_in6 *)&own)->sin6_scope_id;
		CHECK(setsockopt(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, sizeof interface) == 0);
		CHECK(setsockopt(datagrams, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5) == 0);
	}
}

static int groups_are_there(struct sockaddr_storage name)
{
	if (own.ss_family == AF_INET) {
		struct in_addr interface;
		socklen_t bytes = sizeof interface;
		CHECK(getsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &interface, &bytes) == 0);
		return interface.s_addr == ((struct sockaddr_in *)&name)->sin_addr.s_addr;
	}
	if (((struct sockaddr_in6 *)&own)->sin6_scope_id > 0) {
		int interface;
		socklen_t bytes = sizeof interface;
		CHECK(getsockopt(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, &interface, &bytes) == 0);
		char device[IF_NAMESIZE];
		socklen_t length = sizeof device;
		CHECK(getsockopt(datagrams, SOL_SOCKET, SO_BINDTODEVICE, device, &length) == 0 && strcmp(device, "eth0") == 0);
		return interface == (int)if_nametoindex("eth0")
			&& ((struct sockaddr_in6 *)&name)->sin6_scope_id == (uint32_t)interface;
	}
	return 1;
}

static int is_one_place(void)
{
	struct sockaddr_storage name = name_of(listener);
	int same = is_same(name, name_of(second)) && is_same(name, peer_of(client)) && is_same(name, peer_of(waiting))
		&& is_same(name_of(datagrams), peer_of(sender)) && groups_are_there(name);
	char host[NI_MAXHOST];
	strcpy(host, host_of(&name));
	int files[] = { client, waiting, bound, datagrams, sender };
	for (size_t file = 0; file < sizeof files / sizeof *files; file++) {
		struct sockaddr_storage other = name_of(files[file]);
		same = same && strcmp(host, host_of(&other)) == 0;
	}
	return same;
}

static void hold(int step)
{
	char asked[64], answer[64];
	int bytes = snprintf(asked, sizeof asked, "question %d", step);
	CHECK(write(client, asked, (size_t)bytes) == bytes && read(client, answer, sizeof answer) == bytes);
	CHECK(memcmp(asked, answer, (size_t)bytes) == 0);

	/* A second time, if the address has become another one in between. */
	CHECK(is_one_place() || is_one_place());
	struct sockaddr_storage name = name_of(listener);
	say("step %d at %s", step, host_of(&name));
}

static void verify(void)
{
	char text[16];
	struct sockaddr_storage from = { 0 };
	socklen_t bytes = sizeof from;
	CHECK(recvfrom(datagrams, text, sizeof text, 0, (struct sockaddr *)&from, &bytes) == 5);
	CHECK(is_same(from, name_of(sender)));
	/* Which of the two it waits at the kernel decides. */
	CHECK(fcntl(listener, F_SETFL, O_NONBLOCK) == 0 && fcntl(second, F_SETFL, O_NONBLOCK) == 0);
	int accepted = accept(listener, NULL, NULL);
	if (accepted < 0)
		accepted = accept(second, NULL, NULL);
	CHECK(accepted >= 0);
	CHECK(is_same(name_of(waiting), peer_of(accepted)));
}
