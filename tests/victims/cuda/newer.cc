// Looks up functions of a driver that is newer than what libckpt.so knows: the one of asked.cc, whose path is the argument.
#include "waits.h"

#include <cuda.h>
#include <dlfcn.h>

#include <cstring>

using Get = CUresult (*)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static Get get;

static void *find(const char *name, int version) {
    void *found = nullptr;
    CUdriverProcAddressQueryResult status;
    expect(get(name, &found, version, 0, &status) == CUDA_SUCCESS && found);
    return found;
}

static bool is_of(void *function, const char *library) {
    Dl_info object;
    expect(dladdr(function, &object));
    const char *slash = strrchr(object.dli_fname, '/');
    return strcmp(slash ? slash + 1 : object.dli_fname, library) == 0;
}

int main(int, char **argv) {
    wait_by_signal();
    void *driver = dlopen(argv[1], RTLD_NOW);
    expect(driver && (get = reinterpret_cast<Get>(dlsym(driver, "cuGetProcAddress_v2"))));
    const bool is_hooked = is_of(reinterpret_cast<void *>(get), "libckpt.so");
    // The same function as in the version that is known, and another one by the same name.
    expect(is_of(find("cuMemAlloc", 13020), "libckpt.so") == is_hooked);
    expect(is_of(find("cuMemFree", 13000), "libckpt.so") == is_hooked);
    expect(is_of(find("cuMemFree", 13020), "libcuda.so.1"));
    expect(is_of(find("cuNobodyKnows", 13020), "libcuda.so.1"));
    expect(is_of(find("cuStreamCreate", 2000), "libcuda.so.1"));
    wait_after("looked up");
    puts("done");
}
