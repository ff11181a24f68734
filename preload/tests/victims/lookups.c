/* What dlsym and dlvsym answer, of names that are ours to look at and others: the same with libckpt.so and without. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void show(const char *what, void *found)
{
    const char *error = dlerror();
    /* Which object is searched is part of the text, and another one where we stand in front. */
    const char *text = error && strchr(error, ':') ? strrchr(error, ':') : error;
    Dl_info object = { 0 };
    if (found && !dladdr(found, &object))
        object.dli_sname = "?";
    printf("%s: %s, %s\n", what, found ? object.dli_sname : "nothing", text ? text : "no error");
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), *program = dlopen(0, RTLD_LAZY);
    dlerror();
    show("default", dlsym(RTLD_DEFAULT, "getpid"));
    show("handle", dlsym(libc, "getpid"));
    show("program", dlsym(program, "getpid"));
    show("next", dlsym(RTLD_NEXT, "getpid"));
    show("version", dlvsym(libc, "getpid", "GLIBC_2.2.5"));
    show("wrong version", dlvsym(libc, "getpid", "GLIBC_9"));
    show("unknown", dlsym(RTLD_DEFAULT, "cu"));
    show("unknown", dlsym(libc, "no_such_function"));
    show("empty", dlsym(libc, ""));
    /* A program that asks whether there is a CUDA driver. */
    show("driver, default", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
    show("driver, program", dlsym(program, "cuMemAlloc_v2"));
    show("driver, handle", dlsym(libc, "cuMemAlloc_v2"));
    show("driver, next", dlsym(RTLD_NEXT, "cuNoSuchFunction"));
    show("driver, version", dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "GLIBC_2.2.5"));
    show("driver, not hooked", dlsym(RTLD_DEFAULT, "cuDeviceGetCount"));
    show("alike", dlsym(RTLD_DEFAULT, "curl_easy_init"));
    show("alike", dlsym(RTLD_DEFAULT, "cublasCreate_v2"));
    show("again", dlsym(libc, "getppid"));
    return 0;
}
