/* Allocates in five threads while it is being triggered, and reports what it noticed of that: nothing, hopefully. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 5

static atomic_int sigchld, errno_changed, children, stop;

static void on_sigchld(int signal)
{
    sigchld++;
}

static void *work(void *seed)
{
    unsigned state = (unsigned)(long)seed;
    void *blocks[64] = {0};
    char stack[4096] __attribute__((aligned(16)));
    stack_t alternate = {.ss_sp = malloc(16384), .ss_size = 16384};

    if ((long)seed % 2)
        sigaltstack(&alternate, 0);
    memset(stack, 0, sizeof stack);
    while (!stop) {
        for (int i = 0; i < 1000; i++) {
            unsigned slot = (state = state * 1664525 + 1013904223) >> 26;

            errno = 4711;
            for (volatile int spin = 0; spin < 20; spin++)
                ;
            if (errno != 4711)
                errno_changed++;
            free(blocks[slot]);
            blocks[slot] = malloc(state >> 16);
        }
        if (waitpid(-1, 0, WNOHANG) != -1 || errno != ECHILD)
            children++;
    }
    return 0;
}

static int descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int main(void)
{
    pthread_t threads[THREADS];
    int before = descriptors(), command;
    sigset_t mask, after;

    signal(SIGCHLD, on_sigchld);
    sigprocmask(SIG_BLOCK, 0, &mask);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)(i + 1));
    puts("ready");
    fflush(stdout);
    while ((command = getchar()) != EOF || (ferror(stdin) && errno == EINTR))
        clearerr(stdin);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    sigprocmask(SIG_BLOCK, 0, &after);
    printf("sigchld %d, children %d, errno %d, descriptors %+d, mask %s\n", sigchld, children, errno_changed,
           descriptors() - before, memcmp(&mask, &after, 8) ? "changed" : "same");
    return 0;
}
