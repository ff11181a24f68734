// The digest that names a chunk: Murmur3 x64 128 with seed 0, bit for bit the public-domain algorithm.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

constexpr uint64_t MURMUR_1 = 0x87c37b91114253d5ull;
constexpr uint64_t MURMUR_2 = 0x4cf5ad432745937full;

struct alignas(16) Digest {
    uint64_t first, second;
};

__host__ __device__ inline bool operator==(const Digest &left, const Digest &right) {
    return left.first == right.first && left.second == right.second;
}

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

// The chain of one chunk, 16 bytes at a time. Chunks are whole multiples of 16 bytes, so there is no tail.
struct Chain {
    uint64_t first = 0, second = 0;

    __device__ void add(uint64_t low, uint64_t high) {
        first ^= rotated<31>(low * MURMUR_1) * MURMUR_2;
        first = (rotated<27>(first) + second) * 5 + 0x52dce729;
        second ^= rotated<33>(high * MURMUR_2) * MURMUR_1;
        second = (rotated<31>(second) + first) * 5 + 0x38495ab5;
    }

    __device__ Digest finished(uint64_t bytes) const {
        uint64_t one = first ^ bytes, other = second ^ bytes;
        one += other;
        other += one;
        one = scattered(one);
        other = scattered(other);
        one += other;
        return {one, other + one};
    }
};

// The same for any length, for the host. It shares no step with the code above, so that each checks the other.
inline Digest reference_digest(const void *memory, size_t bytes) {
    const unsigned char *at = static_cast<const unsigned char *>(memory);
    auto rotate = [](uint64_t x, unsigned r) { return (x << r) | (x >> (64 - r)); };
    auto finish = [](uint64_t k) {
        k ^= k >> 33;
        k *= 0xff51afd7ed558ccdull;
        k ^= k >> 33;
        k *= 0xc4ceb9fe1a85ec53ull;
        k ^= k >> 33;
        return k;
    };
    auto first_key = [&](uint64_t k) { return rotate(k * MURMUR_1, 31) * MURMUR_2; };
    auto second_key = [&](uint64_t k) { return rotate(k * MURMUR_2, 33) * MURMUR_1; };
    uint64_t h1 = 0, h2 = 0;
    size_t rest = bytes;
    for (; rest >= 16; rest -= 16, at += 16) {
        uint64_t k[2];
        memcpy(k, at, sizeof k);
        h1 ^= first_key(k[0]);
        h1 = rotate(h1, 27);
        h1 += h2;
        h1 = h1 * 5 + 0x52dce729;
        h2 ^= second_key(k[1]);
        h2 = rotate(h2, 31);
        h2 += h1;
        h2 = h2 * 5 + 0x38495ab5;
    }
    uint64_t tail[2] = {};
    memcpy(tail, at, rest);
    h2 ^= second_key(tail[1]);
    h1 ^= first_key(tail[0]);
    h1 ^= bytes;
    h2 ^= bytes;
    h1 += h2;
    h2 += h1;
    h1 = finish(h1);
    h2 = finish(h2);
    h1 += h2;
    h2 += h1;
    return {h1, h2};
}

// Published digests: of nothing, of less than a block, of a block with a tail, and of two blocks with a tail.
inline bool reference_is_right() {
    struct {
        const char *text;
        Digest digest;
    } known[] = {
        {"", {0, 0}},
        {"hello", {0xcbd8a7b341bd9b02ull, 0x5b1e906a48ae1d19ull}},
        {"19 Jan 2038 at 3:14:07 AM", {0xb89e5988b737affcull, 0x664fc2950231b2cbull}},
        {"The quick brown fox jumps over the lazy dog.", {0xcd99481f9ee902c9ull, 0x695da1a38987b6e7ull}},
    };
    for (const auto &one : known)
        if (!(reference_digest(one.text, strlen(one.text)) == one.digest)) return false;
    return true;
}
