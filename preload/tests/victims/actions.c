/* Touches the action of SIGUSR1 in every way there is, and prints what it sees: with libckpt.so and without it, the
 * output must be the same. The word after the number of a step says which function was called. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

sighandler_t sysv_signal(int, sighandler_t);
sighandler_t bsd_signal(int, sighandler_t);
sighandler_t __sysv_signal(int, sighandler_t);

static volatile sig_atomic_t hits;

static void mine(int signal)
{
    hits++;
}

static void other(int signal)
{
    hits += 100;
}

static const char *name(sighandler_t handler)
{
    return handler == SIG_DFL ? "DFL" : handler == SIG_IGN ? "IGN" : handler == SIG_ERR ? "ERR" :
           handler == (sighandler_t)2 ? "HOLD" : handler == mine ? "mine" : handler == other ? "other" : "stranger";
}

static void show(const char *what, sighandler_t before)
{
    struct sigaction now;
    sigset_t mask;
    static int step;
    int saved = errno;

    memset(&now, 0x5a, sizeof now);
    sigaction(SIGUSR1, 0, &now);
    if (now.sa_handler == SIG_DFL) { /* flags and mask of the default mean nothing, and are not kept */
        now.sa_flags = 0;
        sigemptyset(&now.sa_mask);
    }
    sigprocmask(SIG_BLOCK, 0, &mask);
    printf("%d %s -> %s, now %s flags %x masks usr2 %d, blocked %d, hits %d, errno %d\n", ++step, what, name(before),
           name(now.sa_handler), now.sa_flags & ~0x04000000, sigismember(&now.sa_mask, SIGUSR2), sigismember(&mask, SIGUSR1), hits,
           before == SIG_ERR ? saved : 0);
    if (now.sa_handler != SIG_DFL)
        raise(SIGUSR1);
}

static sighandler_t action(sighandler_t handler, int flags)
{
    struct sigaction both = {.sa_handler = handler, .sa_flags = flags};
    struct sigaction *volatile old = &both;

    sigaddset(&both.sa_mask, SIGUSR2);
    /* The same memory for both: the library must read one before the other is written. */
    return sigaction(SIGUSR1, &both, old) ? SIG_ERR : both.sa_handler;
}

int main(int argc, char **argv)
{
    show("nothing", SIG_DFL);
    show("sigaction", action(SIG_DFL, 0) );
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
    show("signal", signal(SIGUSR1, SIG_DFL));
    show("bsd_signal", bsd_signal(SIGUSR1, SIG_DFL));
    show("sysv_signal", sysv_signal(SIGUSR1, SIG_DFL));
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
    show("sigset", sigset(SIGUSR1, SIG_DFL));
    show("sigset hold", sigset(SIGUSR1, (sighandler_t)2));
    show("sigset unhold", sigset(SIGUSR1, SIG_DFL));

    show("sigaction", action(mine, SA_RESTART));
    show("sigaction", action(other, SA_NODEFER));
    show("sigaction", action(SIG_DFL, 0));
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
    show("signal", signal(SIGUSR1, mine));
    show("signal", signal(SIGUSR1, other));
    show("signal", signal(SIGUSR1, SIG_IGN));
    show("signal", signal(SIGUSR1, SIG_DFL));
    show("bsd_signal", bsd_signal(SIGUSR1, mine));
    show("sigignore", sigignore(SIGUSR1) ? SIG_ERR : SIG_DFL);
    show("sigset", sigset(SIGUSR1, mine));
    show("sigset hold", sigset(SIGUSR1, (sighandler_t)2));
    show("sigset", sigset(SIGUSR1, other));
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
    show("sysv_signal", sysv_signal(SIGUSR1, mine));
    show("after the one shot", SIG_DFL);
    show("__sysv_signal", __sysv_signal(SIGUSR1, other));
    siginterrupt(SIGUSR1, 1);
    show("signal", signal(SIGUSR1, mine));
    siginterrupt(SIGUSR1, 0);

    printf("bad %d", sigaction(0, 0, 0));
    printf(" %d", errno);
    printf(" %s", name(signal(99, mine)));
    printf(" %d", errno);
    printf(" %s", name(signal(SIGKILL, mine)));
    printf(" %d", errno);
    printf(" %d", sigignore(SIGSTOP));
    printf(" %d\n", errno);
    printf("others %s", name(signal(SIGUSR2, mine)));
    printf(" %s", name(signal(SIGUSR2, SIG_DFL)));
    printf(" %s", name(sigset(SIGHUP, mine)));
    printf(" %s\n", name(sigset(SIGHUP, SIG_DFL)));
    fflush(stdout);

    if (argc > 1 && !strcmp(argv[1], "default")) {
        sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, 0);
        raise(SIGUSR1); /* the end of a program without libckpt.so */
        puts("alive");
    }
    if (argc > 1 && !strcmp(argv[1], "taken"))
        signal(SIGUSR1, mine);
    if (argc > 1) {
        puts("ready");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    return 0;
}
