// Device memory filled with words that depend on their position and on a seed, and checked for them.
#pragma once

#include "experiment.h"

__host__ __device__ inline uint64_t word_at(uint64_t position, uint64_t seed) {
    uint64_t word = (position + seed) * 0x9e3779b97f4a7c15ull;
    word ^= word >> 32;
    return word * 0xd6e8feb86659fd93ull;
}

static __global__ void fill_words(uint64_t *words, size_t count, uint64_t seed) {
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x)
        words[at] = word_at(at, seed);
}

static __global__ void count_wrong_words(const uint64_t *words, size_t count, uint64_t seed, unsigned long long *wrong) {
    unsigned long long mine = 0;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x)
        mine += words[at] != word_at(at, seed);
    if (mine != 0) atomicAdd(wrong, mine);
}

inline void fill(void *memory, size_t bytes, uint64_t seed) {
    fill_words<<<1024, 256>>>(static_cast<uint64_t *>(memory), bytes / 8, seed);
    RT(cudaGetLastError());
    RT(cudaDeviceSynchronize());
}

// How many words are not what `fill` wrote.
inline unsigned long long wrong_words(const void *memory, size_t bytes, uint64_t seed) {
    unsigned long long *wrong, count;
    RT(cudaMalloc(&wrong, sizeof *wrong));
    RT(cudaMemset(wrong, 0, sizeof *wrong));
    count_wrong_words<<<1024, 256>>>(static_cast<const uint64_t *>(memory), bytes / 8, seed, wrong);
    RT(cudaGetLastError());
    RT(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    RT(cudaFree(wrong));
    return count;
}
