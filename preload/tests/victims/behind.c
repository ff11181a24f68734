/* A library whose functions are hard to find: one that is chosen as it is looked up, one of a version that only old programs
 * mean, one of a version that all mean. Built with the versions in behind.map. */
#include <signal.h>

int sigignore(int signal)
{
    (void)signal;
    return 41;
}

static sighandler_t chosen(int signal, sighandler_t handler)
{
    (void)signal, (void)handler;
    return (sighandler_t)42;
}

static sighandler_t (*choose(void))(int, sighandler_t)
{
    return chosen;
}

sighandler_t sigset(int signal, sighandler_t handler) __attribute__((ifunc("choose")));

sighandler_t of_old_programs(int signal, sighandler_t handler)
{
    (void)signal, (void)handler;
    return (sighandler_t)43;
}
__asm__(".symver of_old_programs, signal@BEHIND_1");

sighandler_t of_all(int signal, sighandler_t handler)
{
    (void)signal, (void)handler;
    return (sighandler_t)44;
}
__asm__(".symver of_all, bsd_signal@@BEHIND_2");
