// What holds work in a stream up, to see who waits for it.
#pragma once

#include "controls.h"
#include "expect.h"

#include <semaphore.h>

#include <atomic>
#include <thread>

// A stream that stands still until it is let go.
struct Brake {
    sem_t held;
    std::atomic<bool> is_done{false};
    CUstream stream;

    Brake() {
        sem_init(&held, 0, 0);
        EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        EXPECT_OK(cuLaunchHostFunc(stream, [](void *held) { sem_wait(static_cast<sem_t *>(held)); }, &held));
    }
    // Puts a fill of the memory behind it, and lets it go when an entry point has been called once more.
    std::thread let_go_after(const char *call, CUdeviceptr memory) {
        EXPECT_OK(cuMemsetD32Async(memory, 3, 250, stream));
        EXPECT_OK(cuLaunchHostFunc(stream, [](void *done) { *static_cast<std::atomic<bool> *>(done) = true; }, &is_done));
        uint64_t before = double_calls(call);
        return std::thread([=, this] {
            while (double_calls(call) == before) std::this_thread::yield();
            sem_post(&held);
        });
    }
};
