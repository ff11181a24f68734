// Runs a kernel: its blocks on the threads of the CPU, the threads of a block as fibers of one of these.
#pragma once

#include <functional>
#include <stdint.h>

namespace on_cpu {

// Lanes of a warp.
constexpr uint32_t WARP = 32;
// The most threads of a block. Fewer than on a GPU, where a block fills a multiprocessor.
constexpr uint32_t BLOCK_THREADS_MAX = 64;

// Returns when all blocks have ended. Ends the process when the threads of a block wait for each other for ever.
void run_grid(uint32_t blocks, uint32_t threads, const std::function<void()> &kernel);

} // namespace on_cpu
