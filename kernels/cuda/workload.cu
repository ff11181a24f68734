// Memory that changes, for measurements: chunks, chosen at random, get random bytes.
#include <stdint.h>

struct Change {
    uint32_t *words;
    uint64_t words_count;
    uint32_t words_per_chunk;
    uint32_t chunks_per_million;
    uint64_t seed;
};

// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
__device__ static uint64_t scattered(uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9ull;
    number = (number ^ number >> 27) * 0x94d049bb133111ebull;
    return number ^ number >> 31;
}

extern "C" __global__ void __launch_bounds__(256) change_chunks(const __grid_constant__ Change change) {
    uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; at < change.words_count; at += step) {
        uint64_t chunk = at / change.words_per_chunk;
        if (scattered(chunk + change.seed * 0x9e3779b97f4a7c15ull) % 1000000 < change.chunks_per_million)
            change.words[at] = uint32_t(scattered((at << 20) + change.seed) >> 32);
    }
}
