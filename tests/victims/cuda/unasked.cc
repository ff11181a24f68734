// Device code with variables that the program never asks for; kernels count their launches in them. Each image has variables of
// lengths of its own, by which the suite knows them (tests/suites/cuda_data.rs). Each step but the first waits for SIGUSR2.
#include "waits.h"

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#define good(call) expect((call) == CUDA_SUCCESS)

#define CODE(launches_bytes, managed_bytes)                                                                            \
    ".version 7.0\n.target sm_80\n.address_size 64\n"                                                                  \
    ".global .align 4 .b8 launches[" launches_bytes "];\n"                                                             \
    ".global .attribute(.managed) .align 4 .b8 launches_managed[" managed_bytes "];\n"

#define ADD_ONE_TO(name) "ld.global.u32 %r1, [" name "];\nadd.u32 %r1, %r1, 1;\nst.global.u32 [" name "], %r1;\n"
#define KERNEL                                                                                                         \
    ".visible .entry count_launch()\n{\n.reg .b32 %r<2>;\n" ADD_ONE_TO("launches") ADD_ONE_TO("launches_managed")       \
    "ret;\n}\n"

static const char code_of_module[] = CODE("256", "288") ".const .align 4 .b8 factors[320];\n" KERNEL;
static const char code_of_library[] = CODE("512", "544") KERNEL;
static const char code_in_buffer[] = CODE("64", "96") KERNEL;
static const char code_in_file[] = CODE("128", "160") KERNEL;
static const char code_in_file_of_library[] = CODE("640", "672") KERNEL;
static const char code_in_fatbin[] = CODE("832", "864") KERNEL;
static const char code_written_over[] = CODE("704", "736") KERNEL;

// In memory that stays, but not what is in it.
static char written_over[4096];

static void write_file(const char *path, const char *code) {
    FILE *file = fopen(path, "w");
    expect(file != nullptr && fputs(code, file) >= 0 && fclose(file) == 0);
}

static CUmodule from_buffer(const char *code) {
    CUmodule module;
    char *buffer = strdup(code);
    good(cuModuleLoadData(&module, buffer));
    memset(buffer, 'x', strlen(code));
    free(buffer);
    return module;
}

// As nvcc stores it, in memory that does not stay. The driver is given the wrapper, which has the address of the rest.
static CUlibrary from_fatbin(const char *code) {
    const uint64_t code_bytes = (strlen(code) + 8) / 8 * 8; // at least one zero
    struct {
        uint32_t magic = 0xba55ed50;
        uint16_t version = 1, header_bytes = 16;
        uint64_t bytes;
        uint16_t kind = 1, entry_version = 0x101;
        uint32_t entry_header_bytes = 64;
        uint64_t code_bytes;
        uint32_t more[12] = { 0, 0, 0, 80 };
    } header;
    static_assert(sizeof header == 80, "two headers without padding");
    header.bytes = 64 + (header.code_bytes = code_bytes);
    std::string fatbin(reinterpret_cast<const char *>(&header), sizeof header);
    fatbin.append(code).resize(sizeof header + code_bytes);
    struct {
        uint32_t magic = 0x466243b1, version = 1;
        const char *fatbin;
        const void *unused = nullptr;
    } wrapper;
    wrapper.fatbin = fatbin.data();
    CUlibrary library;
    good(cuLibraryLoadData(&library, &wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0));
    memset(&fatbin[0], 'z', fatbin.size());
    return library;
}

// Of a cubin it is enough that it can be read: the double has no variables for it.
static void load_cubin(const char *path) {
    std::ifstream file(path, std::ios::binary);
    std::string cubin{ std::istreambuf_iterator<char>(file), {} };
    CUmodule module;
    expect(!cubin.empty());
    good(cuModuleLoadData(&module, cubin.data()));
}

static CUfunction kernel_of(CUmodule module) {
    CUfunction kernel;
    good(cuModuleGetFunction(&kernel, module, "count_launch"));
    return kernel;
}

static CUfunction kernel_of(CUlibrary library) {
    CUkernel kernel;
    good(cuLibraryGetKernel(&kernel, library, "count_launch"));
    return reinterpret_cast<CUfunction>(kernel);
}

static void launch(CUfunction kernel, int times) {
    while (times-- > 0) good(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    good(cuCtxSynchronize());
}

// The double takes for a cubin whatever begins like one. `sections` is where its table of sections would be.
static void load_hostile(size_t bytes, uint64_t sections) {
    std::string image(bytes, '\0');
    uint32_t random = 1;
    for (char &byte : image) byte = char((random = random * 1664525 + 1013904223) >> 24);
    memcpy(&image[0], "\x7f" "ELF", 4);
    memset(&image[32], 0, 32);
    memcpy(&image[40], &sections, sizeof sections);
    CUmodule module;
    good(cuModuleLoadData(&module, image.data()));
}

int main(int count, char **arguments) {
    wait_by_signal();
    CUcontext context;
    good(cuInit(0));
    good(cuDevicePrimaryCtxRetain(&context, 0));
    good(cuCtxSetCurrent(context));
    CUdeviceptr known;
    good(cuMemAlloc(&known, 100000));

    load_cubin(arguments[1]);
    if (count > 2) {
        load_hostile(300, 300);                // no cubin
        load_hostile(300, uint64_t(32) << 20); // its end is not there
        load_hostile(300, uint64_t(1) << 40);  // nor would it be kept
        load_hostile(300, ~uint64_t(0));
    }
    CUmodule module, of_file, of_written_over, buffered = from_buffer(code_in_buffer);
    CUlibrary library, library_of_file, wrapped = from_fatbin(code_in_fatbin);
    good(cuModuleLoadData(&module, code_of_module));
    good(cuLibraryLoadData(&library, code_of_library, nullptr, nullptr, 0, nullptr, nullptr, 0));
    write_file("module.ptx", code_in_file);
    good(cuModuleLoad(&of_file, "module.ptx"));
    write_file("library.ptx", code_in_file_of_library);
    good(cuLibraryLoadFromFile(&library_of_file, "library.ptx", nullptr, nullptr, 0, nullptr, nullptr, 0));
    strcpy(written_over, code_written_over);
    good(cuModuleLoadDataEx(&of_written_over, written_over, 0, nullptr, nullptr));
    memset(written_over, 'y', sizeof written_over);

    launch(kernel_of(buffered), 1);
    launch(kernel_of(of_file), 2);
    launch(kernel_of(module), 3);
    launch(kernel_of(library), 4);
    launch(kernel_of(library_of_file), 5);
    launch(kernel_of(of_written_over), 6);
    launch(kernel_of(wrapped), 8);
    wait_after("step 1");

    // Others are new, and one is gone, with a handle that may be that of a new one.
    launch(kernel_of(module), 10);
    good(cuModuleUnload(buffered));
    CUmodule later = from_buffer(CODE("768", "800") KERNEL);
    launch(kernel_of(later), 7);
    wait_after("step 2");

    // A library is in each context anew; its managed variables are in all at once.
    CUcontext second;
    good(cuCtxCreate(&second, nullptr, 0, 0));
    launch(kernel_of(library), 20);
    wait_after("step 3");

    good(cuLibraryUnload(library));
    good(cuCtxDestroy(second));
    wait_after("step 4");
    puts("done");
}
