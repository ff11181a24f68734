/* Another preloaded library that stands in front of dlsym, and counts. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int counted;

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    counted += !strcmp(name, "getpid");
    return next(handle, name);
}

static __attribute__((destructor)) void say(void)
{
    fprintf(stderr, "counted %d\n", counted);
}
