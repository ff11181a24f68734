/* Large allocations in many threads, in a signal handler, in children forked meanwhile, and in a constructor: at the end,
 * exactly those are recorded that are alive. */
#include "heap_table.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, KEPT = 40, STEPS = 4000, FORKS = 60 };

static void *early;
static _Atomic int in_handler;

static __attribute__((constructor)) void before_main(void)
{
    early = malloc(123456);
}

/* malloc is not for signal handlers; programs do it all the same. Here it is safe: the signal is raised. */
static void handle(int number)
{
    (void)number;
    void *start = malloc(77777);
    expect(recorded(start) == 77777);
    free(start);
    in_handler++;
}

static void *work(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed;
    char **kept = calloc(KEPT, sizeof *kept);
    for (int step = 0; step < STEPS; step++) {
        int at = rand_r(&state) % KEPT;
        size_t bytes = 60000 + rand_r(&state) % 300000;
        expect(!kept[at] || recorded(kept[at]) == (*(size_t *)kept[at] >= 65536 ? *(size_t *)kept[at] : 0));
        if (rand_r(&state) % 3 == 0) {
            kept[at] = realloc(kept[at], bytes);
        } else {
            free(kept[at]);
            kept[at] = malloc(bytes);
        }
        *(size_t *)kept[at] = bytes;
    }
    return kept;
}

/* How many are recorded. */
static size_t count(void)
{
    size_t count = 0;
    for (const struct area *area = table()->areas; area; area = area->next)
        for (int granule = 0; granule < GRANULES; granule++)
            count += area->starts[granule] != 0;
    return count;
}

int main(void)
{
    pthread_t threads[THREADS];
    size_t alive = 0, before = count();
    expect(recorded(early) == 123456);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, work, (void *)(i + 1));
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            void *start = malloc(200000);
            expect(recorded(start) == 200000 && recorded(early) == 123456);
            free(start);
            _exit(recorded(start) != 0);
        }
        int status;
        expect(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        char **kept;
        pthread_join(threads[i], (void **)&kept);
        for (int at = 0; at < KEPT; at++)
            if (kept[at] && *(size_t *)kept[at] >= 65536) {
                alive++;
                expect(recorded(kept[at]) == *(size_t *)kept[at]);
            }
    }
    signal(SIGUSR2, handle);
    for (int i = 0; i < 100; i++)
        raise(SIGUSR2);
    expect(in_handler == 100);
    free(early);
    expect(count() == before - 1 + alive);
    puts("done");
    return 0;
}
