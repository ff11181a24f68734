// The words of CUDA C++ that the kernels use, for a C++ compiler: the same sources run on the CPU, a fiber for each thread.
#pragma once

#include <stdint.h>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
// One block runs on a thread of the CPU at a time, with all its fibers.
#define __shared__ static thread_local

struct Index {
    uint32_t x;
};

namespace on_cpu {
extern thread_local Index thread_index, block_index, block_size, grid_size;

// Each returns when all threads of the warp or block have come.
uint32_t ballot(bool vote);
bool any_of_block(bool vote);
} // namespace on_cpu

#define threadIdx on_cpu::thread_index
#define blockIdx on_cpu::block_index
#define blockDim on_cpu::block_size
#define gridDim on_cpu::grid_size

inline uint32_t __ballot_sync(uint32_t, bool vote) { return on_cpu::ballot(vote); }
inline void __syncwarp() { on_cpu::ballot(false); }
inline void __syncthreads() { on_cpu::any_of_block(false); }
inline int __syncthreads_or(int vote) { return on_cpu::any_of_block(vote != 0); }

inline int __popc(uint32_t word) { return __builtin_popcount(word); }
inline int __clzll(uint64_t word) { return word == 0 ? 64 : __builtin_clzll(word); }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by) {
    return uint32_t((uint64_t(high) << 32 | low) << (by & 31) >> 32);
}

template <typename T> T atomicAdd(T *place, T more) { return __atomic_fetch_add(place, more, __ATOMIC_RELAXED); }
template <typename T> T atomicMax(T *place, T least) {
    T seen = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (seen < least && !__atomic_compare_exchange_n(place, &seen, least, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return seen;
}
