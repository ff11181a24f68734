// The entry points of the CUDA driver that the engine uses, for a device that is the CPU. Streams run beside one another and
// beside the caller, as on a GPU; what a copy or a kernel does is done in full.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "grid.h"
#include "kernels.h"

namespace {

using on_cpu::Kernel;

enum Result : int { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

// A stream: what is to be done, in order, by a thread of its own.
class Stream {
  public:
    Stream() : thread([this] { work(); }) {}
    ~Stream() {
        push(nullptr);
        thread.join();
    }
    void push(std::function<void()> work) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(std::move(work));
        changed.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return queue.empty(); });
    }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    std::thread thread;

    void work() {
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return !queue.empty(); });
            auto work = queue.front();
            lock.unlock();
            if (!work) return;
            work();
            lock.lock();
            queue.pop_front(); // only now: an empty queue has been worked off
            changed.notify_all();
        }
    }
};

// An event: how often it was recorded, and how many of these times have come.
class Event {
  public:
    void record(Stream &stream) {
        std::lock_guard<std::mutex> lock(mutex);
        uint64_t time = ++recorded;
        stream.push([this, time] {
            std::lock_guard<std::mutex> lock(mutex);
            come = time;
            when = std::chrono::steady_clock::now();
            changed.notify_all();
        });
    }
    uint64_t last() {
        std::lock_guard<std::mutex> lock(mutex);
        return recorded;
    }
    void wait(uint64_t time) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return come >= time; });
    }

    float milliseconds_since(Event &earlier) { return std::chrono::duration<float, std::milli>(time() - earlier.time()).count(); }

  private:
    using Time = std::chrono::steady_clock::time_point;
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, come = 0;
    Time when;

    Time time() {
        std::lock_guard<std::mutex> lock(mutex);
        return when;
    }
};

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
char the_context, the_module;

template <typename T> T *pointer(uint64_t address) { return reinterpret_cast<T *>(address); }

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

int cuStreamCreate(Stream **stream, unsigned) { return *stream = new Stream, SUCCESS; }
int cuStreamDestroy_v2(Stream *stream) { return delete stream, SUCCESS; }
int cuStreamSynchronize(Stream *stream) { return stream->wait(), SUCCESS; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    stream->push([event, time = event->last()] { event->wait(time); });
    return SUCCESS;
}
int cuEventCreate(Event **event, unsigned) { return *event = new Event, SUCCESS; }
int cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
    return *milliseconds = to->milliseconds_since(*from), SUCCESS;
}
int cuEventDestroy_v2(Event *event) { return delete event, SUCCESS; }
int cuEventRecord(Event *event, Stream *stream) { return event->record(*stream), SUCCESS; }
int cuEventSynchronize(Event *event) { return event->wait(event->last()), SUCCESS; }

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    stream->push([=] { memcpy(pointer<void>(to), from, bytes); });
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    stream->push([=] { memcpy(to, pointer<void>(from), bytes); });
    return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
    stream->push([=] { memmove(pointer<void>(to), pointer<void>(from), bytes); });
    return SUCCESS;
}
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream *stream) {
    stream->push([=] { memset(pointer<void>(to), byte, bytes); });
    return SUCCESS;
}

// The image is not looked at: the kernels have been compiled into this library.
int cuModuleLoadData(void **module, const void *) { return *module = &the_module, SUCCESS; }
int cuModuleUnload(void *) { return SUCCESS; }
int cuModuleGetFunction(const Kernel **kernel, void *, const char *name) {
    *kernel = on_cpu::kernel_named(name);
    return *kernel == nullptr ? NOT_FOUND : SUCCESS;
}
int cuFuncGetAttribute(int *value, int, const Kernel *) { return *value = on_cpu::BLOCK_THREADS_MAX, SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const Kernel *, int, size_t) {
    return *blocks = 2, SUCCESS;
}
int cuLaunchKernel(const Kernel *kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, Stream *stream, void **parameters, void **) {
    if (blocks == 0 || threads == 0 || threads > on_cpu::BLOCK_THREADS_MAX) return INVALID_VALUE;
    stream->push([=, launch = kernel->with(parameters)] { on_cpu::run_grid(blocks, threads, launch); });
    return SUCCESS;
}

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
