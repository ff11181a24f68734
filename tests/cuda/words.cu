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
}
#endif
