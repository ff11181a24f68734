// The nodes that are written down: those of first occurrences and of shifted duplicates below no other of their kind. Each
// is found by its first chunk, so that the entries of a difference come in the order of their bytes.
#pragma once

#include "join.cuh"

// The topmost node that begins with this chunk, counted in the region.
struct Topmost {
    Label label;
    uint32_t node;
    bool is_first_chunk; // or the node begins before it

    __device__ Topmost(const Checkpoint &checkpoint, const Region &region, uint32_t chunk)
        : label(checkpoint.labels[region.first_node + chunk]), node(chunk), is_first_chunk(label != FIXED) {
        if (checkpoint.method != TREE || label == FIXED) return;
        Level level = Level::of_chunks(region);
        for (uint32_t at = chunk; !level.is_top(); at /= 2) {
            level = level.above();
            uint32_t above = level.first + at / 2;
            Label label_above = checkpoint.labels[region.first_node + above];
            if (label_above == MIXED) return;
            label = label_above;
            node = above;
            if (at % 2 == 1) {
                is_first_chunk = false;
                return;
            }
        }
    }
};

// Sets the bits of a tile, and counts what it has.
__device__ inline void mark_topmost(const Checkpoint &checkpoint) {
    __shared__ Amount total;
    Tile tile(checkpoint, blockIdx.x);
    if (threadIdx.x == 0) total = Amount{0, 0, 0};
    __syncthreads();
    Amount mine = {0, 0, 0};
    for (uint32_t at = threadIdx.x; at < TILE_CHUNKS; at += blockDim.x) {
        uint32_t chunk = tile.first_chunk() + at, group = tile.first_group + at / LANES;
        bool is_stored = checkpoint.changed[group] >> at % LANES & 1, is_first = false, is_shift = false;
        if (checkpoint.method != BASIC && is_stored) {
            Topmost topmost(checkpoint, tile.region, chunk);
            is_stored = topmost.label == FIRST;
            is_first = is_stored && topmost.is_first_chunk;
            is_shift = !is_stored && topmost.is_first_chunk;
        }
        if (is_stored) mine.bytes += bytes_of(tile.region, chunk, checkpoint.chunk_bytes);
        uint32_t stored = __ballot_sync(ALL_LANES, is_stored), firsts = __ballot_sync(ALL_LANES, is_first),
                 shifts = __ballot_sync(ALL_LANES, is_shift);
        if (at % LANES == 0) {
            checkpoint.stored[group] = stored;
            checkpoint.firsts[group] = firsts;
            checkpoint.shifts[group] = shifts;
            mine.firsts += __popc(firsts);
            mine.shifts += __popc(shifts);
        }
    }
    if (mine.bytes != 0) add_to(&total.bytes, mine.bytes);
    if (mine.firsts != 0) atomicAdd(&total.firsts, mine.firsts);
    if (mine.shifts != 0) atomicAdd(&total.shifts, mine.shifts);
    __syncthreads();
    if (threadIdx.x == 0) checkpoint.amounts[blockIdx.x] = total;
}

// Tiles whose entries are written at once, where to, and how many there are before theirs.
struct EntryWindow {
    uint32_t first_tile;
    uint32_t firsts_before, shifts_before;
    uint32_t *firsts; // nodes
    Shift *shifts;
};

__device__ inline uint32_t rank_in(const uint32_t *words, uint32_t word, uint32_t bit) {
    uint32_t rank = __popc(words[word] & ((1u << bit) - 1));
    for (uint32_t before = 0; before < word; ++before) rank += __popc(words[before]);
    return rank;
}

__device__ inline void write_entries(const Checkpoint &checkpoint, const EntryWindow &window) {
    uint32_t tile_number = window.first_tile + blockIdx.x;
    Tile tile(checkpoint, tile_number);
    const uint32_t *firsts = checkpoint.firsts + tile.first_group, *shifts = checkpoint.shifts + tile.first_group;
    Amount before = checkpoint.amounts[tile_number];
    for (uint32_t at = threadIdx.x; at < TILE_CHUNKS; at += blockDim.x) {
        uint32_t word = at / LANES, bit = at % LANES;
        bool is_first = firsts[word] >> bit & 1, is_shift = shifts[word] >> bit & 1;
        if (!is_first && !is_shift) continue;
        uint32_t in_region = Topmost(checkpoint, tile.region, tile.first_chunk() + at).node;
        uint32_t node = tile.region.first_node + in_region;
        if (is_first) {
            window.firsts[before.firsts - window.firsts_before + rank_in(firsts, word, bit)] = node;
        } else {
            uint64_t source = ~owner_in(checkpoint.history, digest_at(tile.region, in_region));
            window.shifts[before.shifts - window.shifts_before + rank_in(shifts, word, bit)] =
                Shift{node, uint32_t(source), uint32_t(source >> 32)};
        }
    }
}
