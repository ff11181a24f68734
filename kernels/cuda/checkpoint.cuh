// What all kernels know of a checkpoint: its regions, the nodes of their trees, and what has been found out of them.
//
// Chunks are worked on by tiles of 1024 in one region, and by groups of 32, a chunk to a lane. Whatever has a bit for each
// chunk has 32 words for each tile: the last tile of a region may have chunks that are not there, with bits that are zero.
#pragma once

#include "history.cuh"

constexpr uint32_t TILE_LEVELS = 10;
constexpr uint32_t TILE_CHUNKS = 1 << TILE_LEVELS;
constexpr uint32_t TILE_GROUPS = TILE_CHUNKS / LANES;

struct Region {
    const uint8_t *bytes;
    uint64_t length;
    // By chunk: as they are now, once they have been looked at. The first `known` were there at the checkpoint before.
    Digest *digests;
    Digest *inner; // those of the nodes over chunks
    uint32_t chunks, known;
    uint32_t first_node;
    uint32_t first_tile;
};

enum Label : uint8_t {
    FIXED,
    FIRST,
    SHIFT,
    MIXED,
    // For as long as first occurrences are being settled: all of it was seen first in this checkpoint, and some of it
    // repeats other of it.
    HERE,
};
enum Method : uint32_t { BASIC, LIST, TREE };

// First how much a tile has, then how much all tiles before it have.
struct Amount {
    uint64_t bytes;          // stored
    uint32_t firsts, shifts; // entries
};

struct Totals {
    uint32_t changed; // chunks
    uint32_t used;    // entries of the history's last segment
    uint32_t overflow;
    uint32_t unused;
};

struct Shift {
    uint32_t node;
    uint32_t source_node, source_checkpoint;
};

struct Checkpoint {
    const Region *regions;
    uint32_t region_count, tile_count;
    uint32_t chunk_bytes;
    uint32_t number;
    Method method;
    uint32_t *changed; // a bit for each chunk: it is not what it was
    uint32_t *stored;  // its bytes are stored here
    uint32_t *firsts;  // an entry of first occurrences begins with it
    uint32_t *shifts;  // an entry of shifted duplicates begins with it
    Label *labels;     // by node
    Amount *amounts;   // by tile
    Totals *totals;
    uint32_t *sketch;  // of the changed chunks' digests (sketch.cuh)
    History history;
};

// src/device/layout.rs has the same.
static_assert(sizeof(Region) == 48 && sizeof(Amount) == 16 && sizeof(Totals) == 16 && sizeof(Shift) == 12);
static_assert(sizeof(History) == 280 && sizeof(Checkpoint) == 376);

// The region with a tile.
__device__ inline uint32_t region_with(const Checkpoint &checkpoint, uint32_t tile) {
    uint32_t from = 0, to = checkpoint.region_count;
    while (to - from > 1) {
        uint32_t middle = from + (to - from) / 2;
        if (checkpoint.regions[middle].first_tile <= tile)
            from = middle;
        else
            to = middle;
    }
    return from;
}

// How many bytes a chunk has: only the last one may have fewer.
__device__ inline uint32_t bytes_of(const Region &region, uint32_t chunk, uint32_t chunk_bytes) {
    uint64_t before = uint64_t(chunk) * chunk_bytes;
    return uint32_t(region.length - before < chunk_bytes ? region.length - before : chunk_bytes);
}

// The nodes of a level, counted in the region from its first chunk's node on.
struct Level {
    uint32_t number, first, width;

    __device__ static Level of_chunks(const Region &region) { return {0, 0, region.chunks}; }
    __device__ Level above() const { return {number + 1, first + width, width / 2 + width % 2}; }
    __device__ bool is_top() const { return width <= 1; }
};

__device__ inline Digest &digest_at(const Region &region, uint32_t node) {
    return node < region.chunks ? region.digests[node] : region.inner[node - region.chunks];
}

// A piece of a region that a block works on.
struct Tile {
    const Region &region;
    uint32_t number;      // in the region
    uint32_t first_group; // among those of all regions

    __device__ explicit Tile(const Checkpoint &checkpoint, uint32_t tile)
        : region(checkpoint.regions[region_with(checkpoint, tile)]), number(tile - region.first_tile),
          first_group(tile * TILE_GROUPS) {}
    __device__ uint32_t first_chunk() const { return number * TILE_CHUNKS; }
};
