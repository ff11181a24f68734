/* first_answer PORT BODY COMMAND...: how long COMMAND takes until it answers. A part of the section warm-start of scripts/bench.
 *
 * It makes a network for COMMAND and itself, with a loopback interface that is up, and prints "ready". At the first line on
 * stdin it starts COMMAND, asks 127.0.0.1:PORT for / until the body of an answer is BODY, and prints CLOCK_MONOTONIC
 * before the start and behind the answer, in ns, and the pid of COMMAND. Between two attempts it sleeps for 1 ms. At the
 * end of stdin it sends COMMAND a SIGTERM, and waits until all that has come of COMMAND has ended. What COMMAND prints goes to
 * stderr.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60, PAUSE_NS = 1000 * 1000, ROOM = 1 << 16 };

extern char **environ;

static void die(const char *what)
{
    fprintf(stderr, "first_answer: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void make_network(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        die("no network of its own (needs root)");
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (any < 0 || ioctl(any, SIOCSIFFLAGS, &loopback) != 0)
        die("lo does not come up");
    close(any);
}

/* Whether the port answers and the answer ends in the body. The server closes the connection behind it. */
static int answers(const struct sockaddr_in *where, const char *body)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    int line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line < 0)
        die("socket");
    struct timeval limit = {.tv_sec = LIMIT_S};
    setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(line, (const struct sockaddr *)where, sizeof *where) != 0) {
        close(line);
        return 0;
    }
    char answer[ROOM];
    size_t filled = 0;
    ssize_t got = -1;
    if (send(line, request, sizeof request - 1, MSG_NOSIGNAL) == sizeof request - 1)
        while (filled < ROOM && (got = recv(line, answer + filled, ROOM - filled, 0)) > 0)
            filled += got;
    close(line);
    if (got != 0)
        return 0;
    size_t length = strlen(body);
    int is_it = filled > length && memcmp(answer + filled - length, body, length) == 0;
    if (filled > 0 && !is_it) {
        fprintf(stderr, "first_answer: a wrong answer: %.*s\n", (int)filled, answer);
        exit(1);
    }
    return is_it;
}

int main(int count, char **words)
{
    if (count < 4) {
        fprintf(stderr, "usage: first_answer PORT BODY COMMAND...\n");
        return 2;
    }
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    make_network();
    /* What COMMAND leaves behind is found below this process. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 2, 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);

    char word;
    if (write(1, "ready\n", 6) != 6 || read(0, &word, 1) != 1)
        return 1;
    pid_t child;
    long long begun = now_ns();
    errno = posix_spawnp(&child, words[3], &files, &attributes, words + 3, environ);
    if (errno != 0)
        die(words[3]);
    while (!answers(&where, words[2])) {
        int status;
        if (waitpid(child, &status, WNOHANG) == child) {
            fprintf(stderr, "first_answer: %s has ended with status %#x before it answered\n", words[3], status);
            return 1;
        }
        if (now_ns() - begun > LIMIT_S * 1000000000LL) {
            fprintf(stderr, "first_answer: no answer for %d s\n", LIMIT_S);
            kill(child, SIGKILL);
            return 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    long long answered = now_ns();
    printf("%lld %lld %d\n", begun, answered, child);
    fflush(stdout);
    while (read(0, &word, 1) > 0)
        ;
    kill(child, SIGTERM);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    return 0;
}
