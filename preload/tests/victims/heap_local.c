/* A C program that loads a C++ library (the argument) into a scope of its own, as Python loads its modules: no library
 * that everybody sees has operator new, but ours. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    (void)argc;
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(void) = library ? (int (*)(void))dlsym(library, "heap_cxx") : 0;
    if (!run || run())
        return 1;
    puts("done");
    return 0;
}
