// The bytes that a difference stores, side by side, a window at a time.
#pragma once

#include "join.cuh"

// Bytes `from` to `to` of all that are stored. They are in the blocks' tiles from `first_tile` on.
struct Window {
    uint64_t from, to;
    uint8_t *bytes; // of the window
    uint32_t first_tile;
    uint32_t unused;
};

// The chunks of a tile that are stored, in order.
struct StoredChunks {
    uint16_t chunks[TILE_CHUNKS];
    uint32_t before[TILE_GROUPS + 1]; // how many there are before each group

    __device__ void find(const uint32_t *stored) {
        if (threadIdx.x == 0) {
            before[0] = 0;
            for (uint32_t group = 0; group < TILE_GROUPS; ++group)
                before[group + 1] = before[group] + __popc(stored[group]);
        }
        __syncthreads();
        for (uint32_t at = threadIdx.x; at < TILE_CHUNKS; at += blockDim.x) {
            uint32_t word = stored[at / LANES], bit = at % LANES;
            if (word >> bit & 1) chunks[before[at / LANES] + __popc(word & ((1u << bit) - 1))] = uint16_t(at);
        }
        __syncthreads();
    }
    __device__ uint32_t count() const { return before[TILE_GROUPS]; }
};

// Copies those bytes of a tile that are `from` to `to` among its stored ones, as many units as fit. All chunks are whole
// units, but perhaps the last; what is behind its last whole unit is left to copy.
template <typename Unit>
__device__ inline uint64_t copy_units(const StoredChunks &stored, const uint8_t *tile_bytes, uint32_t chunk_bytes,
                                      uint8_t *to_bytes, uint64_t from, uint64_t to) {
    uint32_t units_per_chunk = chunk_bytes / sizeof(Unit), first = uint32_t(from / sizeof(Unit)),
             end = uint32_t(to / sizeof(Unit));
    for (uint32_t unit = first + threadIdx.x; unit < end; unit += blockDim.x) {
        const uint8_t *chunk = tile_bytes + uint64_t(stored.chunks[unit / units_per_chunk]) * chunk_bytes;
        Unit word = reinterpret_cast<const Unit *>(chunk)[unit % units_per_chunk];
        reinterpret_cast<Unit *>(to_bytes)[unit - first] = word;
    }
    return uint64_t(end) * sizeof(Unit);
}

__device__ inline void gather(const Checkpoint &checkpoint, const Window &window) {
    __shared__ StoredChunks stored;
    uint32_t tile_number = window.first_tile + blockIdx.x;
    Tile tile(checkpoint, tile_number);
    stored.find(checkpoint.stored + tile.first_group);
    if (stored.count() == 0) return;

    uint32_t chunk_bytes = checkpoint.chunk_bytes;
    uint64_t begin = checkpoint.amounts[tile_number].bytes;
    uint32_t last = stored.chunks[stored.count() - 1];
    uint64_t bytes = uint64_t(stored.count() - 1) * chunk_bytes +
                     bytes_of(tile.region, tile.first_chunk() + last, chunk_bytes);
    uint64_t from = begin < window.from ? window.from - begin : 0;
    uint64_t to = begin + bytes < window.to ? bytes : window.to > begin ? window.to - begin : 0;
    if (from >= to) return;

    const uint8_t *tile_bytes = tile.region.bytes + uint64_t(tile.first_chunk()) * chunk_bytes;
    uint8_t *to_bytes = window.bytes + (begin + from - window.from);
    uint64_t crooked = reinterpret_cast<uint64_t>(tile_bytes) | reinterpret_cast<uint64_t>(to_bytes) | from | chunk_bytes;
    uint64_t copied = from;
    if (crooked % 16 == 0)
        copied = copy_units<Word>(stored, tile_bytes, chunk_bytes, to_bytes, from, to);
    else if (crooked % 4 == 0)
        copied = copy_units<uint32_t>(stored, tile_bytes, chunk_bytes, to_bytes, from, to);
    copy_units<uint8_t>(stored, tile_bytes, chunk_bytes, to_bytes + (copied - from), copied, to);
}
