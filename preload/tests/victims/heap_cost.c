/* Nanoseconds of a malloc/free pair through libckpt.so and past it, alternating in one run: the least of many rounds,
 * the median, and the 99th percentile of the difference of neighbouring rounds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 401, PAIRS = 100000 };

typedef void *(*allocate)(size_t);
typedef void (*release)(void *);

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Not inlined, so that both ways have the same code. */
static __attribute__((noinline)) double pair_ns(allocate allocate, release release)
{
    double begin = now_ns();
    for (int i = 0; i < PAIRS; i++) {
        void *volatile block = allocate(32 + (i & 63));
        release(block);
    }
    return (now_ns() - begin) / PAIRS;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static double hooked[ROUNDS], past[ROUNDS], difference[ROUNDS];
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    allocate real_malloc = (allocate)dlsym(libc, "malloc");
    release real_free = (release)dlsym(libc, "free");
    /* With large allocations alive, in the areas that the small ones are in too, a free has to look closer. */
    for (int large = 0; large < 2; large++) {
        void *kept[64];
        for (int i = 0; i < 64; i++)
            kept[i] = large ? malloc(100000) : 0;
        for (int i = 0; i < ROUNDS; i++) {
            past[i] = pair_ns(real_malloc, real_free);
            hooked[i] = pair_ns(malloc, free);
            difference[i] = hooked[i] - past[i];
        }
        for (int i = 0; i < 64; i++)
            free(kept[i]);
        qsort(past, ROUNDS, sizeof *past, ascending);
        qsort(hooked, ROUNDS, sizeof *hooked, ascending);
        qsort(difference, ROUNDS, sizeof *difference, ascending);
        printf("%s: past %.2f (median %.2f), hooked %.2f (median %.2f), difference median %.2f p99 %.2f\n",
               large ? "64 large allocations alive" : "no large allocation", past[0], past[ROUNDS / 2], hooked[0],
               hooked[ROUNDS / 2], difference[ROUNDS / 2], difference[ROUNDS * 99 / 100]);
    }
    return 0;
}
