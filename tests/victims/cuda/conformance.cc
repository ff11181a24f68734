// Asks a CUDA driver for everything that the double has, and says what it answers: the same on the double and on a real driver.
//
//   conformance KERNELS.ptx
//
// What is not the same on every machine is not said: addresses, times, names, how much there is of what. Nor is what the
// documentation leaves open. The groups that no driver's checkpoint takes with it come after those that are checkpointed.
#include "conformance/groups.h"

#include <stdlib.h>

CUdevice device;
CUcontext context;
std::string ptx_path, ptx;

// False if it cannot be read.
static bool read_kernels(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == nullptr) return false;
    ptx_path = path;
    for (int letter; (letter = fgetc(file)) != EOF;) ptx += char(letter);
    return fclose(file) == 0;
}

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--other") == 0) return other_process(arguments[2], atoi(arguments[3]));
    if (count != 2 || !read_kernels(arguments[1])) return fprintf(stderr, "usage: conformance KERNELS.ptx\n"), 2;
    initialisation();
    devices();
    contexts();
    memory();
    copies_and_fills();
    streams();
    host_memory();
    virtual_memory();
    pointers();
    arrays();
    pools();
    entry_points();
    checkpoints();
    modules();
    graphs();
    managed();
    managed_pools();
    managed_variables();
    other_processes();
    begin("end");
    SAY(cuDevicePrimaryCtxRelease(device));
    return 0;
}
