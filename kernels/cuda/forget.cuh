// What happens to the history between checkpoints: some of it is forgotten, and many segments become one.
#pragma once

#include "history.cuh"

// Numbers of checkpoints, in order.
struct Gone {
    const uint32_t *numbers;
    uint64_t count;

    __device__ bool has(uint32_t number) const {
        uint64_t from = 0, to = count;
        while (from < to) {
            uint64_t middle = from + (to - from) / 2;
            if (numbers[middle] < number)
                from = middle + 1;
            else
                to = middle;
        }
        return from < count && numbers[from] == number;
    }
};

template <typename What> __device__ inline void each_entry(const Segment &segment, What what) {
    uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; at < segment.capacity; at += step)
        what(segment.entries[at]);
}

// The digests stay, so that others are found behind them; nobody owns them any more.
__device__ inline void forget(const Segment &segment, const Gone &gone) {
    each_entry(segment, [&](Entry &entry) {
        if (entry.owner != 0 && gone.has(uint32_t(~entry.owner >> 32))) entry.owner = 0;
    });
}

__device__ inline void move(const Segment &from, const History &to) {
    each_entry(from, [&](const Entry &entry) {
        if (entry.owner != 0) claim(to, Digest{entry.first, entry.second}, entry.owner);
    });
}
