// Kernels that change words, alone in a module: it has no variables.
#ifndef WORDS_CU
#define WORDS_CU

#include <stdint.h>

extern "C" {

// Every word is the value.
__global__ void fill_words(uint32_t *words, uint64_t count, uint32_t value) {
    uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) words[at] = value;
}

// Every word is one more.
__global__ void add_one(uint32_t *words, uint64_t count) {
    uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) words[at] += 1;
}

// A word that hardly another is equal to, of any seed.
__device__ inline uint32_t mixed_word(uint64_t at, uint32_t seed) {
    uint64_t word = (at + (uint64_t(seed) << 32) + 1) * 0x9e3779b97f4a7c15u;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return uint32_t(word >> 32);
}

// Words that repeat nowhere.
__global__ void fill_mixed(uint32_t *words, uint64_t count, uint32_t seed) {
    uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) words[at] = mixed_word(at, seed);
}

// Adds for each thread how many words it has found that are not these.
__global__ void count_others(const uint32_t *words, uint64_t count, uint32_t seed, uint64_t *others) {
    uint64_t stride = uint64_t(gridDim.x) * blockDim.x, thread = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    for (uint64_t at = thread; at < count; at += stride) others[thread] += words[at] != mixed_word(at, seed);
}
}
#endif
