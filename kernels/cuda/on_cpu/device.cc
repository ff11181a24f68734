// The entry points of the CUDA driver that the engine uses, for a device that is the CPU: the device, its context, its memory.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>

#include "results.h"

using namespace on_cpu;

namespace {

// Memory of the device, of which there is as much as the last call of on_cpu_set_memory said.
class Memory {
  public:
    void *allocate(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        if (bytes > limit - used) return nullptr;
        void *place = aligned_alloc(256, (bytes + 255) / 256 * 256);
        memset(place, 0xa5, bytes); // nothing may rely on zeros
        sizes[place] = bytes;
        used += bytes;
        return place;
    }
    bool release(void *place) {
        std::lock_guard<std::mutex> lock(mutex);
        auto found = sizes.find(place);
        if (found == sizes.end()) return false;
        used -= found->second;
        sizes.erase(found);
        free(place);
        return true;
    }
    void set_limit(size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        limit = used > bytes ? used : bytes;
    }

  private:
    std::mutex mutex;
    size_t limit = size_t(8) << 30, used = 0;
    std::map<void *, size_t> sizes;
};

Memory &memory() {
    static Memory *memory = new Memory; // for as long as the process lives
    return *memory;
}

thread_local void *current_context = nullptr;
char the_context;

} // namespace

extern "C" {

// Not of CUDA: how much memory the device has from now on, but at least what is in use.
void on_cpu_set_memory(size_t bytes) { memory().set_limit(bytes); }

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = 0, ordinal == 0 ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int length, int) {
    strncpy(name, "the CPU in place of a GPU", size_t(length));
    return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
    switch (attribute) {
    case 16: *value = 2; return SUCCESS; // multiprocessors
    case 75: *value = 9; return SUCCESS; // compute capability
    case 76: *value = 0; return SUCCESS;
    default: return INVALID_VALUE;
    }
}

int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &the_context, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxSetCurrent(void *context) { return current_context = context, SUCCESS; }
int cuCtxGetCurrent(void **context) { return *context = current_context, SUCCESS; }

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (current_context == nullptr) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    void *place = memory().allocate(bytes);
    *address = reinterpret_cast<uint64_t>(place);
    return place == nullptr ? OUT_OF_MEMORY : SUCCESS;
}
int cuMemFree_v2(uint64_t address) {
    if (current_context == nullptr) return INVALID_CONTEXT;
    return memory().release(pointer<void>(address)) ? SUCCESS : INVALID_VALUE;
}
int cuMemHostAlloc(void **place, size_t bytes, unsigned) {
    *place = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *place == nullptr ? OUT_OF_MEMORY : SUCCESS;
}
int cuMemFreeHost(void *place) { return free(place), SUCCESS; }

int cuGetErrorName(int result, const char **name) {
    switch (result) {
    case SUCCESS: *name = "CUDA_SUCCESS"; return SUCCESS;
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return SUCCESS;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return SUCCESS;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return SUCCESS;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return SUCCESS;
    default: return INVALID_VALUE;
    }
}
}
