// Entry points for modules and libraries.
#include "modules.h"

#include <string.h>

#include <fstream>
#include <sstream>

#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "grid.h"
#include "live.h"
#include "queues.h"

namespace test_double {

namespace {

std::map<std::string, void **> &bound() {
    static auto *bound = new std::map<std::string, void **>;
    return *bound;
}

// Zeros, as a module's variables are. 0 where there is not as much memory left.
CUdeviceptr new_variable(const Variable &variable, CUcontext context) {
    int device = context == nullptr ? 0 : context->device;
    auto *made = allocate(Kind::VARIABLE, device, variable.is_managed ? NO_DEVICE : device, context, variable.bytes);
    if (made == nullptr) return 0;
    memset(at<void>(made->start), 0, variable.bytes);
    return made->start;
}

void unload(CUmodule module) {
    for (auto &[name, address] : module->variables) end_allocation(address);
    for (auto &[name, function] : module->functions) Live<CUfunc_st>::destroy(function);
    if (module->library != nullptr) module->library->modules.erase(module->context);
    Live<CUmod_st>::destroy(module);
}

CUresult load(CUmodule *loaded, Image image, CUlibrary library) {
    CUcontext context = current_context();
    CUmodule module = Live<CUmod_st>::create(CUmod_st{context, std::move(image), library});
    for (const Variable &variable : module->image.variables) {
        if (library != nullptr && variable.is_managed) continue;
        CUdeviceptr address = new_variable(variable, context);
        if (address == 0) return unload(module), CUDA_ERROR_OUT_OF_MEMORY;
        module->variables[variable.name] = address;
    }
    if (library != nullptr) library->modules[context] = module;
    *loaded = module;
    return CUDA_SUCCESS;
}

// The module that a library is in the current context.
CUresult module_in_context(CUmodule *module, CUlibrary library) {
    auto found = library->modules.find(current_context());
    if (found == library->modules.end()) return load(module, library->image, library);
    *module = found->second;
    return CUDA_SUCCESS;
}

CUfunction function_of(CUmodule module, const std::string &name) {
    if (!module->image.has_kernel(name)) return nullptr;
    CUfunction &function = module->functions[name];
    if (function == nullptr) function = Live<CUfunc_st>::create(CUfunc_st{module, name, on_cpu::kernel_named(name.c_str())});
    return function;
}

} // namespace

Place variable_of(CUmodule module, const std::string &name) {
    Locked locked;
    auto look = [&](const std::map<std::string, CUdeviceptr> &variables) {
        auto found = variables.find(name);
        return found == variables.end() ? Place{} : Place{found->second, allocation_at(found->second)->bytes};
    };
    Place own = look(module->variables);
    return own.address == 0 && module->library != nullptr ? look(module->library->managed) : own;
}

CUfunction function_meant(CUfunction given) {
    Locked locked;
    if (Live<CUfunc_st>::has(given)) return given;
    auto kernel = reinterpret_cast<CUkernel>(given);
    CUmodule module;
    if (!Live<CUkern_st>::has(kernel) || module_in_context(&module, kernel->library) != CUDA_SUCCESS) return nullptr;
    return function_of(module, kernel->name);
}

void unload_modules_of(CUcontext context) {
    for (CUmodule module : Live<CUmod_st>::those([&](auto &one) { return one.context == context; })) unload(module);
}

Bound::Bound(const char *name, void **pointer) { bound()[name] = pointer; }

void bind_variables(CUmodule module) {
    Locked locked;
    for (auto &[name, pointer] : bound()) *pointer = at<void>(variable_of(module, name).address);
}

} // namespace test_double

using namespace test_double;

static CUresult load_module(CUmodule *module, const void *image) {
    Image read;
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_image(image, read)) return CUDA_ERROR_INVALID_IMAGE;
    Locked locked;
    return load(module, std::move(read), nullptr);
}

// False if it cannot be read.
static bool read_file(const char *path, std::string &content) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream all;
    all << file.rdbuf();
    content = all.str();
    return bool(file);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(A_CONTEXT);
    return load_module(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
    ENTER(A_CONTEXT);
    return load_module(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    ENTER(A_CONTEXT);
    return load_module(module, image);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    ENTER(A_CONTEXT);
    std::string image;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return read_file(path, image) ? load_module(module, image.c_str()) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER(A_CONTEXT);
    CUcontext context;
    {
        Locked locked;
        if (!Live<CUmod_st>::has(module)) return CUDA_ERROR_INVALID_HANDLE;
        context = module->context;
    }
    for (auto &queue : queues_of(context)) queue->wait(); // what still runs may be of it
    Locked locked;
    if (!Live<CUmod_st>::has(module)) return CUDA_ERROR_INVALID_HANDLE; // two threads have unloaded it
    unload(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUmod_st>::has(module)) return CUDA_ERROR_INVALID_HANDLE;
    *function = function_of(module, name);
    return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

static CUresult say_place(CUdeviceptr *address, size_t *bytes, Place place) {
    if (place.address == 0) return CUDA_ERROR_NOT_FOUND;
    if (address != nullptr) *address = place.address;
    if (bytes != nullptr) *bytes = place.bytes;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUmod_st>::has(module)) return CUDA_ERROR_INVALID_HANDLE;
    return say_place(address, bytes, variable_of(module, name));
}

static CUresult load_library(CUlibrary *library, const void *image) {
    Image read;
    if (library == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!read_image(image, read)) return CUDA_ERROR_INVALID_IMAGE;
    Locked locked;
    CUlibrary loaded = Live<CUlib_st>::create(CUlib_st{std::move(read)});
    for (const Variable &variable : loaded->image.variables)
        if (variable.is_managed) loaded->managed[variable.name] = new_variable(variable, nullptr);
    *library = loaded;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *, void **, unsigned, CUlibraryOption *, void **,
                           unsigned) {
    ENTER(INITIALISED);
    return load_library(library, image);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *, void **, unsigned, CUlibraryOption *, void **,
                               unsigned) {
    ENTER(INITIALISED);
    std::string image;
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return read_file(path, image) ? load_library(library, image.c_str()) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTER(INITIALISED);
    for (auto &queue : queues_of(nullptr)) queue->wait(); // what still runs may be of it
    Locked locked;
    if (!Live<CUlib_st>::has(library)) return CUDA_ERROR_INVALID_HANDLE;
    while (!library->modules.empty()) unload(library->modules.begin()->second);
    for (auto &[name, kernel] : library->kernels) Live<CUkern_st>::destroy(kernel);
    for (auto &[name, address] : library->managed) end_allocation(address);
    Live<CUlib_st>::destroy(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    ENTER(INITIALISED);
    Locked locked;
    if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUlib_st>::has(library)) return CUDA_ERROR_INVALID_HANDLE;
    if (!library->image.has_kernel(name)) return CUDA_ERROR_NOT_FOUND;
    CUkernel &known = library->kernels[name];
    if (known == nullptr) known = Live<CUkern_st>::create(CUkern_st{library, name});
    *kernel = known;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUlib_st>::has(library)) return CUDA_ERROR_INVALID_HANDLE;
    return module_in_context(module, library);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    ENTER(A_CONTEXT);
    Locked locked;
    CUmodule module;
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUlib_st>::has(library)) return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = module_in_context(&module, library);
    return result != CUDA_SUCCESS ? result : say_place(address, bytes, variable_of(module, name));
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    ENTER(INITIALISED);
    Locked locked;
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUlib_st>::has(library)) return CUDA_ERROR_INVALID_HANDLE;
    auto found = library->managed.find(name);
    if (found == library->managed.end()) return CUDA_ERROR_NOT_FOUND;
    return say_place(address, bytes, {found->second, allocation_at(found->second)->bytes});
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUkern_st>::has(kernel)) return CUDA_ERROR_INVALID_HANDLE;
    *function = function_meant(reinterpret_cast<CUfunction>(kernel));
    return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUfunc_st>::has(function)) return CUDA_ERROR_INVALID_HANDLE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    ENTER(NOTHING);
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}
