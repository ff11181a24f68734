// Modules and libraries: images that are loaded, with their kernels and the memory of their variables.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <string>

#include "image.h"
#include "kernels.h"

struct CUfunc_st {
    CUmodule module;
    std::string name;
    const on_cpu::Kernel *kernel; // null if the double has none of this name
};

struct CUmod_st {
    CUcontext context;
    test_double::Image image;
    CUlibrary library = nullptr; // that it is a part of
    std::map<std::string, CUfunction> functions{};
    std::map<std::string, CUdeviceptr> variables{}; // their own; managed ones of a library are that's
};

struct CUkern_st {
    CUlibrary library;
    std::string name;
};

struct CUlib_st {
    test_double::Image image;
    std::map<CUcontext, CUmodule> modules{};
    std::map<std::string, CUkernel> kernels{};
    std::map<std::string, CUdeviceptr> managed{};
};

namespace test_double {

// What a launch means, which may be a library's kernel: that kernel in the current context. Null if there is no such.
CUfunction function_meant(CUfunction given);
void unload_modules_of(CUcontext context);

// Where a variable of a module is; null address if it has none of this name.
struct Place {
    CUdeviceptr address = 0;
    size_t bytes = 0;
};
Place variable_of(CUmodule module, const std::string &name);

// A kernel on the CPU reads a module's variable through a pointer of this name, which is set before each launch.
struct Bound {
    Bound(const char *name, void **pointer);
};
void bind_variables(CUmodule module);

} // namespace test_double
