// What chunks and nodes are: as before, first occurrences, or shifted duplicates.
//
// The history learns every node all of whose chunks were seen first in this checkpoint, also where some of them repeat
// others. These are settled before anything is looked up, over all regions, so that what is found does not
// depend on which block comes first. A block climbs from the chunks of a tile to the node over all of them; what is above that is little, and one
// block climbs on in each region.
#pragma once

#include "sketch.cuh"

constexpr uint32_t THREADS = 256;

// Calls `what(chunk)` for each changed chunk of a tile.
template <typename What> __device__ inline void each_changed_chunk(const Checkpoint &checkpoint, What what) {
    Tile tile(checkpoint, blockIdx.x);
    for (uint32_t at = threadIdx.x; at < TILE_CHUNKS; at += blockDim.x)
        if (checkpoint.changed[tile.first_group + at / LANES] >> at % LANES & 1)
            what(tile.region, tile.first_chunk() + at);
}

__device__ inline void sketch_changed(const Checkpoint &checkpoint) {
    each_changed_chunk(checkpoint, [&](const Region &region, uint32_t chunk) {
        sketch_chunk(checkpoint, region.digests[chunk]);
    });
}

// The first of several equal chunks will own their digest.
__device__ inline void claim_chunks(const Checkpoint &checkpoint) {
    each_changed_chunk(checkpoint, [&](const Region &region, uint32_t chunk) {
        claim(checkpoint.history, region.digests[chunk], owner_of(checkpoint.number, region.first_node + chunk));
    });
}

__device__ inline void label_chunks(const Checkpoint &checkpoint) {
    each_changed_chunk(checkpoint, [&](const Region &region, uint32_t chunk) {
        uint32_t node = region.first_node + chunk;
        uint64_t owner = owner_in(checkpoint.history, region.digests[chunk]);
        bool is_first = owner == owner_of(checkpoint.number, node);
        bool is_here = checkpoint.method == TREE && uint32_t(~owner >> 32) == checkpoint.number;
        checkpoint.labels[node] = is_first ? FIRST : is_here ? HERE : SHIFT;
    });
}

// Once all that was seen first in this checkpoint has been settled.
__device__ inline void settle_chunks(const Checkpoint &checkpoint) {
    each_changed_chunk(checkpoint, [&](const Region &region, uint32_t chunk) {
        Label &label = checkpoint.labels[region.first_node + chunk];
        if (label == HERE) label = SHIFT;
    });
}

__device__ inline bool has_changed(const Checkpoint &checkpoint, const Tile &tile) {
    bool has = threadIdx.x < TILE_GROUPS && checkpoint.changed[tile.first_group + threadIdx.x] != 0;
    return __syncthreads_or(has);
}

// A node and what is below it. Positions are counted in the region.
struct Family {
    const Checkpoint &checkpoint;
    const Region &region;
    uint32_t level, node, left;
    bool has_right;

    __device__ Family(const Checkpoint &checkpoint, const Region &region, Level below, uint32_t at)
        : checkpoint(checkpoint), region(region), level(below.number + 1), node(below.first + below.width + at),
          left(below.first + 2 * at), has_right(2 * at + 1 < below.width) {}

    __device__ Label &label(uint32_t of) const { return checkpoint.labels[region.first_node + of]; }
    template <typename Is> __device__ bool all_below(Is is) const {
        return is(label(left)) && (!has_right || is(label(left + 1)));
    }
    __device__ bool all_below_are(Label wanted) const {
        return all_below([=](Label label) { return label == wanted; });
    }
    __device__ Digest digest_children() const {
        Digest digest = has_right ? digest_of_node(level, digest_at(region, left), digest_at(region, left + 1))
                                  : digest_of_node(level, digest_at(region, left));
        return digest_at(region, node) = digest;
    }
};

// A node over first occurrences alone occurs for the first time too.
struct JoinFirsts {
    __device__ static void begin(const Checkpoint &checkpoint) { label_chunks(checkpoint); }
    __device__ static void join(const Family &family) {
        if (!family.all_below([](Label label) { return label == FIRST || label == HERE; })) return;
        uint32_t node = family.region.first_node + family.node;
        claim(family.checkpoint.history, family.digest_children(), owner_of(family.checkpoint.number, node));
        family.label(family.node) = family.all_below_are(FIRST) ? FIRST : HERE;
    }
};

// A node over duplicates alone is a duplicate when the history has it as a whole, from elsewhere.
struct JoinShifts {
    __device__ static void begin(const Checkpoint &checkpoint) { settle_chunks(checkpoint); }
    __device__ static void join(const Family &family) {
        Label &label = family.label(family.node);
        if (label == FIRST) return;
        if (family.all_below_are(FIXED))
            label = FIXED;
        else
            label = family.all_below_are(SHIFT) && is_known(family, label == HERE) ? SHIFT : MIXED;
    }

  private:
    __device__ static bool is_known(const Family &family, bool has_digest) {
        Digest digest = has_digest ? digest_at(family.region, family.node) : family.digest_children();
        uint64_t owner = owner_in(family.checkpoint.history, digest);
        return owner != 0 && owner != owner_of(family.checkpoint.number, family.region.first_node + family.node);
    }
};

// Nodes `from` to `to` of the level above `below`.
template <typename Join>
__device__ inline void join_level(const Checkpoint &checkpoint, const Region &region, Level below, uint32_t from,
                                  uint32_t to) {
    for (uint32_t at = from + threadIdx.x; at < to; at += blockDim.x)
        Join::join(Family(checkpoint, region, below, at));
    __syncthreads();
}

// From the chunks of a block's tile to the node over them, if any of them has changed.
template <typename Join> __device__ inline void climb_tile(const Checkpoint &checkpoint) {
    Tile tile(checkpoint, blockIdx.x);
    if (!has_changed(checkpoint, tile)) return;
    Join::begin(checkpoint);
    __syncthreads();
    Level below = Level::of_chunks(tile.region);
    for (uint32_t level = 1; level <= TILE_LEVELS && !below.is_top(); ++level, below = below.above()) {
        uint32_t from = tile.first_chunk() >> level, to = from + (TILE_CHUNKS >> level);
        uint32_t width = below.above().width;
        join_level<Join>(checkpoint, tile.region, below, from, to < width ? to : width);
    }
}

// From the nodes over tiles to the root.
template <typename Join> __device__ inline void climb_region(const Checkpoint &checkpoint, const Region &region) {
    Level below = Level::of_chunks(region);
    for (; !below.is_top(); below = below.above())
        if (below.number >= TILE_LEVELS)
            join_level<Join>(checkpoint, region, below, 0, below.above().width);
}
