/* A library whose constructor uses our hooks before our own constructor has run (it is preloaded behind ours, and the
 * dynamic linker runs constructors from the last library to the first). */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void mine(int signal)
{
}

__attribute__((constructor)) static void early(void)
{
    const char *what = getenv("EARLY");
    struct sigaction now;

    if (!what)
        return;
    if (*what == 's')
        signal(SIGUSR1, mine);
    if (sigaction(SIGUSR1, 0, &now) || now.sa_handler != (*what == 's' ? mine : SIG_DFL))
        _exit(99);
    if (*what == 'd' && signal(SIGUSR1, SIG_DFL) == SIG_ERR)
        _exit(98);
}
