/* Tells every signal it gets, one line each: "signal NUMBER code CODE value VALUE". Ends with status 9 on
 * SIGTERM. With the argument "leader" it leads a process group of its own, with "reader" it reads a line from
 * standard input first. Nothing is ignored, and nothing has its default effect but stops. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    sigset_t all;
    setvbuf(stdout, NULL, _IONBF, 0);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "leader") && setpgid(0, 0))
            return 1;
    sigfillset(&all);
    sigdelset(&all, SIGTSTP);
    sigdelset(&all, SIGTTIN);
    sigprocmask(SIG_BLOCK, &all, NULL);
    printf("ready %d\n", getpid());
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "reader")) {
            char line[64] = "";
            ssize_t n = read(0, line, sizeof line - 1);
            printf("read %d %s", (int)n, line);
        }
    for (;;) {
        siginfo_t info;
        int number = sigwaitinfo(&all, &info);
        if (number < 0)
            continue;
        printf("signal %d code %d value %d\n", number, info.si_code, info.si_value.sival_int);
        if (number == SIGTERM)
            return 9;
    }
}
