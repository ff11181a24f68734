// Instructions that C++ has no name for: copies that do not pass through registers, and a 128-bit compare-and-swap.
// They are gathered here so that the kernels themselves contain no assembly.
#pragma once

#include <cuda.h>

#include "t7_murmur.cuh"

using Word = ulonglong2; // 16 bytes: what one lane loads at once

__device__ inline uint32_t shared_address(const void *in_shared_memory) {
    return uint32_t(__cvta_generic_to_shared(in_shared_memory));
}

// Starts copying 16 bytes. The L2 cache is asked to fetch PREFETCH bytes around them from memory at once.
template <int PREFETCH> __device__ inline void start_copy(Word *to, const Word *from) {
    static_assert(PREFETCH == 128 || PREFETCH == 256);
    if constexpr (PREFETCH == 128)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                     : "memory");
    else
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                     : "memory");
}

__device__ inline void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most OPEN of this lane's groups are still being copied.
template <int OPEN> __device__ inline void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}

// ---- the copy engine of a multiprocessor ----

// Where a tile's arrival is awaited. One thread announces a tile, any number wait for it.
struct Arrival {
    uint64_t barrier;
};

__device__ inline void prepare_arrivals(Arrival *arrivals, int count) {
    for (int at = 0; at < count; ++at)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrivals + at)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Starts copying the tile whose upper left corner is (`column`, `row`) of the table that `map` describes.
__device__ inline void start_tile(void *to, const CUtensorMap &map, uint32_t column, uint32_t row, uint32_t bytes,
                                  Arrival *arrival) {
    uint32_t barrier = shared_address(arrival);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                 "l"(&map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

__device__ inline bool has_arrived(Arrival *arrival, uint32_t phase) {
    uint32_t done;
    asm volatile("{\n"
                 "    .reg .pred there;\n"
                 "    mbarrier.try_wait.parity.shared::cta.b64 there, [%1], %2;\n"
                 "    selp.u32 %0, 1, 0, there;\n"
                 "}"
                 : "=r"(done)
                 : "r"(shared_address(arrival)), "r"(phase)
                 : "memory");
    return done != 0;
}

// A tile that never arrives must not hang the card: after some seconds the kernel is ended with an error.
__device__ inline void wait_for_tile(Arrival *arrival, uint32_t phase) {
    if (has_arrived(arrival, phase)) return;
    long long begun = clock64();
    while (!has_arrived(arrival, phase))
        if (clock64() - begun > 4000000000ll) __trap();
}

// ---- the table ----

// Writes `key` where nothing is yet. Returns what was there.
__device__ inline Digest swap_if_empty(Digest *place, Digest key) {
    Digest found;
    asm volatile("{\n"
                 "    .reg .b128 nothing, wanted, found;\n"
                 "    mov.b128 nothing, {%2, %2};\n"
                 "    mov.b128 wanted, {%3, %4};\n"
                 "    atom.relaxed.gpu.global.cas.b128 found, [%5], nothing, wanted;\n"
                 "    mov.b128 {%0, %1}, found;\n"
                 "}"
                 : "=l"(found.first), "=l"(found.second)
                 : "l"(uint64_t(0)), "l"(key.first), "l"(key.second), "l"(__cvta_generic_to_global(place))
                 : "memory");
    return found;
}

__device__ inline uint64_t swap_if_empty(uint64_t *place, uint64_t half) {
    return atomicCAS(reinterpret_cast<unsigned long long *>(place), 0ull, static_cast<unsigned long long>(half));
}

__device__ inline void raise_to(uint64_t *place, uint64_t least) {
    atomicMax(reinterpret_cast<unsigned long long *>(place), static_cast<unsigned long long>(least));
}

// Other multiprocessors see the store at once, and the load what they stored: neither stops at the nearest cache.
__device__ inline void store_for_all(uint64_t *place, uint64_t word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(place)), "l"(word) : "memory");
}

__device__ inline uint64_t load_from_all(const uint64_t *place) {
    uint64_t word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(__cvta_generic_to_global(place)) : "memory");
    return word;
}

// As the L2 cache has it, which all multiprocessors share. The two halves may be of different times.
__device__ inline Word load_from_cache(const Digest *place) { return __ldcg(reinterpret_cast<const Word *>(place)); }
