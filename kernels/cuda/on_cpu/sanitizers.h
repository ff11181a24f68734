// What the sanitizers must be told of fibers. The one for threads takes fibers for threads that are not in step: it reports
// what two of them touch without a barrier between.
#pragma once

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__SANITIZE_THREAD__)
// For code that runs on both sides of a switch.
#define NOT_WATCHED __attribute__((no_sanitize("thread"), noinline))
#else
#define NOT_WATCHED __attribute__((noinline))
#endif

namespace on_cpu {

class FiberOfSanitizer {
  public:
#if defined(__SANITIZE_ADDRESS__)
    void create(const void *stack, size_t bytes) { this->stack = stack, this->bytes = bytes; }
    void is_current() {
        pthread_attr_t attributes;
        void *lowest;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &lowest, &bytes);
        pthread_attr_destroy(&attributes);
        stack = lowest;
    }
    void leaving_for() { __sanitizer_start_switch_fiber(nullptr, stack, bytes); }
    void arrived() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }

  private:
    const void *stack = nullptr;
    size_t bytes = 0;
#elif defined(__SANITIZE_THREAD__)
    void create(const void *, size_t) { fiber = __tsan_create_fiber(0); }
    void is_current() { fiber = __tsan_get_current_fiber(); }
    void leaving_for() { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
    void arrived() {}

  private:
    void *fiber = nullptr;
#else
    void create(const void *, size_t) {}
    void is_current() {}
    void leaving_for() {}
    void arrived() {}
#endif
};

} // namespace on_cpu
