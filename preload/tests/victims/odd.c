/* Programs in odd states, chosen by the argument, that wait to be triggered: they print "ready", and "again" for each
 * line they read. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt.h"

static void serve(void)
{
    char byte;
    ssize_t n;

    if (write(1, "ready\n", 6) < 0)
        return;
    while ((n = read(0, &byte, 1)) == 1 || (n < 0 && errno == EINTR))
        if (n == 1 && write(1, "again\n", 6) < 0)
            return;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "plain";

    if (!strcmp(mode, "closed")) { /* no descriptor but 0 and 1; the next number is 2 and stays 2 */
        for (int fd = 2; fd < 1024; fd++)
            close(fd);
        serve();
        return dup(0) != 2;
    }
    if (!strcmp(mode, "nofiles")) { /* not one descriptor may be opened */
        struct rlimit limit;

        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &limit);
        serve();
        return 0;
    }
    if (!strcmp(mode, "smallstack")) { /* as small an alternate stack as the kernel allows for one frame and a bit */
        size_t bytes = (size_t)sysconf(_SC_MINSIGSTKSZ) + 2048, page = 4096;
        size_t size = (bytes + page - 1) / page * page;
        char *memory = mmap(0, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        mprotect(memory, page, PROT_NONE);
        sigaltstack(&(stack_t){.ss_sp = memory + page + (size - bytes), .ss_size = bytes}, 0);
        memset(memory + page, 0xa5, size - bytes);
        serve();
        for (size_t i = 0; i < size - bytes; i++)
            if ((unsigned char)memory[page + i] != 0xa5)
                return 1;
        return 0;
    }
    if (!strcmp(mode, "vfork")) { /* a child that shares our memory, and then a program of its own */
        pid_t pid = vfork();
        int status;

        if (pid == 0) {
            execl("/proc/self/exe", argv[0], "plain", (char *)0);
            _exit(1);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        return WEXITSTATUS(status);
    }
    if (!strcmp(mode, "forked")) { /* a fork made while the flag of an agent being started may be set */
        for (int i = 0; i < 200; i++) {
            pid_t pid = fork();
            int status;

            if (pid == 0) {
                int result = 0;

                for (int j = 0; j < 1000 && (result = ckpt_checkpoint()) && errno == EAGAIN; j++)
                    usleep(1000);
                _exit(result != 0);
            }
            while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
            if (status)
                return 1;
            if (i == 0 && write(1, "ready\n", 6) < 0)
                return 1;
        }
        return 0;
    }
    if (!strcmp(mode, "api")) {
        int result = ckpt_checkpoint ? ckpt_checkpoint() : -2;

        printf("%d %s %ld\n", result, result ? strerror(errno) : "-", ckpt_generation ? (long)ckpt_generation() : -1);
        return 0;
    }
    serve();
    return 0;
}
