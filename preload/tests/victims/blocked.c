/* Waits in one system call after the other and prints whether each did what it should. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void report(const char *call, long result, double begin, double seconds)
{
    int failed = errno;
    double took = now() - begin;

    printf("%s %ld %s %s\n", call, result, result < 0 ? strerror(failed) : "-",
           took < seconds ? "too early" : took > seconds + 20 ? "too late" : "in time");
    fflush(stdout);
}

int main(void)
{
    struct timespec delay = {0, 300000000}, left = {0, 0};
    struct timeval timeout = {0, 300000};
    int word = 0, pipes[2], status;
    char byte;
    double begin;
    pid_t pid;

    printf("control %p\nthread %d\n", dlsym(RTLD_DEFAULT, "ckpt_control"), getpid());
    fflush(stdout);
    begin = now();
    report("nanosleep", nanosleep(&delay, &left), begin, 0.3);
    begin = now();
    report("poll", poll(0, 0, 300), begin, 0.3);
    begin = now();
    report("select", select(0, 0, 0, 0, &timeout), begin, 0.3);
    begin = now();
    report("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &delay, 0, 0), begin, 0.3);
    if (pipe(pipes))
        return 1;
    pid = fork();
    if (pid == 0) {
        nanosleep(&delay, 0);
        byte = write(pipes[1], "x", 1) == 1;
        nanosleep(&delay, 0);
        _exit(7);
    }
    begin = now();
    report("read", read(pipes[0], &byte, 1), begin, 0.1);
    begin = now();
    report("waitpid", waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1, begin, 0.1);
    report("waitpid", waitpid(-1, &status, 0), now(), 0);
    return 0;
}
