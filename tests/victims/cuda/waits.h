// Programs that a test looks at between their steps.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>

#define expect(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static sigset_t the_signal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return set;
}

// Before threads are started, which inherit it.
static void wait_by_signal() {
    sigset_t set = the_signal();
    expect(sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
}

static void wait_after(const char *line) {
    puts(line);
    fflush(stdout);
    sigset_t set = the_signal();
    int number;
    expect(sigwait(&set, &number) == 0);
}
