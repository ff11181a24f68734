/* Calls functions that libckpt.so has hooks over, about a signal that is none of its business. */
#include <signal.h>
#include <stdio.h>

sighandler_t bsd_signal(int, sighandler_t);

static void handler(int signal)
{
    (void)signal;
}

static long shown(sighandler_t answer)
{
    return answer == handler ? -1 : (long)answer;
}

int main(void)
{
    struct sigaction action;
    int ignored = sigignore(SIGUSR2);
    long set = shown(sigset(SIGUSR2, handler)), bsd = shown(bsd_signal(SIGUSR2, handler));
    long before = shown(signal(SIGUSR2, handler));
    sigaction(SIGUSR2, 0, &action);
    printf("sigignore %d, sigset %ld, bsd_signal %ld, signal %ld %s\n", ignored, set, bsd, before,
           action.sa_handler == handler ? "in place" : "elsewhere");
    return 0;
}
