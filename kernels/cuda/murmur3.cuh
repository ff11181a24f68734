// Murmur3-x64-128 (Austin Appleby, public domain), bit for bit. Digests of nodes are seeded with their level.
#pragma once

#include "instructions.cuh"

struct alignas(16) Digest {
    uint64_t first, second;

    __device__ bool operator==(const Digest &other) const { return first == other.first && second == other.second; }
};

// In 32-bit halves, as the device has it: of 64-bit shifts of a product the compiler makes another multiplication.
template <int BY> __device__ inline uint64_t rotated(uint64_t word) {
    uint32_t low = uint32_t(BY < 32 ? word : word >> 32), high = uint32_t(BY < 32 ? word >> 32 : word);
    return uint64_t(__funnelshift_l(low, high, BY % 32)) << 32 | __funnelshift_l(high, low, BY % 32);
}

__device__ inline uint64_t scattered(uint64_t word) {
    word = (word ^ word >> 33) * 0xff51afd7ed558ccdull;
    word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ull;
    return word ^ word >> 33;
}

// The chain of one chunk, 16 bytes at a time.
struct Chain {
    uint64_t first, second;

    __device__ explicit Chain(uint32_t seed = 0) : first(seed), second(seed) {}

    __device__ void add(uint64_t low, uint64_t high) {
        first ^= scrambled_low(low);
        first = (rotated<27>(first) + second) * 5 + 0x52dce729;
        second ^= scrambled_high(high);
        second = (rotated<31>(second) + first) * 5 + 0x38495ab5;
    }

    // After the last whole 16 bytes come what is left, less than 16 and zeros.
    __device__ Digest finished(uint64_t bytes, uint64_t low = 0, uint64_t high = 0) {
        uint64_t one = first ^ scrambled_low(low) ^ bytes, other = second ^ scrambled_high(high) ^ bytes;
        one += other;
        other += one;
        one = scattered(one);
        other = scattered(other);
        one += other;
        return {one, other + one};
    }

  private:
    static constexpr uint64_t ONE = 0x87c37b91114253d5ull, OTHER = 0x4cf5ad432745937full;

    __device__ static uint64_t scrambled_low(uint64_t word) { return rotated<31>(word * ONE) * OTHER; }
    __device__ static uint64_t scrambled_high(uint64_t word) { return rotated<33>(word * OTHER) * ONE; }
};

__device__ inline uint64_t word_of_bytes(const uint8_t *bytes, uint32_t count) {
    uint64_t word = 0;
#pragma unroll 1
    for (uint32_t at = 0; at < count; ++at) word |= uint64_t(bytes[at]) << at * 8;
    return word;
}

// Of any bytes, one after another: for the few chunks that are cut short or lie crooked.
__device__ inline Digest digest_of_bytes(const uint8_t *bytes, uint64_t count) {
    Chain chain;
    uint64_t left = count;
#pragma unroll 1
    for (; left >= 16; left -= 16, bytes += 16) chain.add(word_of_bytes(bytes, 8), word_of_bytes(bytes + 8, 8));
    uint32_t low = left < 8 ? uint32_t(left) : 8;
    return chain.finished(count, word_of_bytes(bytes, low), word_of_bytes(bytes + low, uint32_t(left) - low));
}

// Of a node, from those of the one or two nodes below it.
__device__ inline Digest digest_of_node(uint32_t level, Digest left) {
    Chain chain(level);
    chain.add(left.first, left.second);
    return chain.finished(sizeof left);
}

__device__ inline Digest digest_of_node(uint32_t level, Digest left, Digest right) {
    Chain chain(level);
    chain.add(left.first, left.second);
    chain.add(right.first, right.second);
    return chain.finished(sizeof left + sizeof right);
}
