// What CUDA C++ has no portable name for, gathered here so that the kernels contain no assembly. Compiled by another
// compiler than nvcc, the same kernels run on the CPU (on_cpu/), where all of this has a plain equivalent.
#pragma once

#include <stdint.h>

constexpr uint32_t LANES = 32;
constexpr uint32_t ALL_LANES = 0xffffffff;

#ifdef __CUDACC__

using Word = ulonglong2; // 16 bytes: the most that a lane loads at once

// Starts copying to shared memory, past the registers. 16 bytes: also past the nearest cache, which has no use for them.
__device__ inline void start_copy(Word *to, const Word *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
}

__device__ inline void start_copy(uint32_t *to, const uint32_t *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}

__device__ inline void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most OPEN of this lane's groups are still being copied.
template <int OPEN> __device__ inline void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

// What other multiprocessors wrote, not what the nearest cache remembers.
__device__ inline uint64_t load_shared_by_all(const uint64_t *place) {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(__cvta_generic_to_global(place)) : "memory");
    return word;
}

__device__ inline uint32_t load_shared_by_all(const uint32_t *place) {
    uint32_t word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(__cvta_generic_to_global(place)) : "memory");
    return word;
}

// Writes `wanted` where zero is. Returns what was there.
__device__ inline uint64_t swap_if_zero(uint64_t *place, uint64_t wanted) {
    using Long = unsigned long long;
    return atomicCAS(reinterpret_cast<Long *>(place), Long(0), Long(wanted));
}

__device__ inline void add_to(uint64_t *place, uint64_t more) {
    using Long = unsigned long long;
    atomicAdd(reinterpret_cast<Long *>(place), Long(more));
}

__device__ inline void raise_to(uint64_t *place, uint64_t least) {
    using Long = unsigned long long;
    atomicMax(reinterpret_cast<Long *>(place), Long(least));
}

#else

#include "on_cpu/instructions.h"

#endif
