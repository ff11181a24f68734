// Where each digest was seen first, in the whole lineage: open addressing in a few segments of device memory. Entries are
// never removed while a kernel runs, and only the last segment takes new ones; when it is full the host adds another, so
// that growing copies nothing and needs no memory for two tables.
#pragma once

#include "murmur3.cuh"

struct Entry {
    uint64_t first, second; // the digest; zero: not written
    // The complement of (checkpoint << 32 | node), so that zero is "nobody" and the greatest is the earliest. The earliest
    // wins whatever the order in which threads come, so that the table does not depend on their timing.
    uint64_t owner;
};

struct Segment {
    Entry *entries;
    uint64_t capacity;
};

constexpr uint32_t SEGMENTS_MAX = 16;
// Whoever finds no place within so many entries takes the segment for full.
constexpr uint32_t PROBES_MAX = 512;

struct History {
    Segment segments[SEGMENTS_MAX];
    uint32_t count;
    uint32_t limit;     // of entries used in the last segment
    uint32_t *used;     // entries used there
    uint32_t *overflow; // set when a digest found no place
};

__device__ inline uint64_t owner_of(uint32_t checkpoint, uint32_t node) {
    return ~(uint64_t(checkpoint) << 32 | node);
}

// No key has an empty half, because zero stands for "not written". This makes (0, x) and (1, x) one key, which is no
// likelier to happen than two chunks of one digest.
__device__ inline Digest key_of(Digest digest) {
    return {digest.first + (digest.first == 0), digest.second + (digest.second == 0)};
}

struct Probe {
    const Segment &segment;
    uint64_t at;

    __device__ Probe(const Segment &segment, Digest key)
        : segment(segment), at((key.first >> 32) * segment.capacity >> 32) {}
    __device__ Entry *entry() const { return segment.entries + at; }
    __device__ void advance() { at = at + 1 == segment.capacity ? 0 : at + 1; }
};

__device__ inline Entry *find(const Segment &segment, Digest key) {
    Probe probe(segment, key);
    for (uint32_t probes = 0; probes < PROBES_MAX; ++probes, probe.advance()) {
        Entry *entry = probe.entry();
        uint64_t first = load_shared_by_all(&entry->first);
        if (first == 0) break;
        if (first == key.first && load_shared_by_all(&entry->second) == key.second) return entry;
    }
    return nullptr;
}

// The owner of a digest, or zero.
__device__ inline uint64_t owner_in(const History &history, Digest digest) {
    Digest key = key_of(digest);
    for (uint32_t segment = 0; segment < history.count; ++segment)
        if (Entry *entry = find(history.segments[segment], key)) return load_shared_by_all(&entry->owner);
    return 0;
}

__device__ inline void own(Entry *entry, uint64_t owner) {
    if (load_shared_by_all(&entry->owner) < owner) raise_to(&entry->owner, owner);
}

// The halves of a key are written one after the other, each by a compare-and-swap of its own: all who meet at an entry
// have the same first half, and whose second half is there keeps it. So nobody waits for anybody.
__device__ inline Entry *find_or_insert(const History &history, Digest key) {
    Probe probe(history.segments[history.count - 1], key);
    for (uint32_t probes = 0; probes < PROBES_MAX; ++probes, probe.advance()) {
        Entry *entry = probe.entry();
        uint64_t first = load_shared_by_all(&entry->first);
        if (first == 0) {
            if (load_shared_by_all(history.used) >= history.limit) return nullptr;
            first = swap_if_zero(&entry->first, key.first);
            if (first == 0) {
                atomicAdd(history.used, 1u);
                first = key.first;
            }
        }
        if (first != key.first) continue;
        uint64_t second = load_shared_by_all(&entry->second);
        if (second == 0) second = swap_if_zero(&entry->second, key.second);
        if (second == 0 || second == key.second) return entry;
    }
    return nullptr;
}

// Makes `owner` the owner of a digest unless an earlier one is known.
__device__ inline void claim(const History &history, Digest digest, uint64_t owner) {
    Digest key = key_of(digest);
    Entry *entry = nullptr;
    for (uint32_t segment = 0; segment + 1 < history.count && entry == nullptr; ++segment)
        entry = find(history.segments[segment], key);
    if (entry == nullptr) entry = find_or_insert(history, key);
    if (entry != nullptr)
        own(entry, owner);
    else
        atomicMax(history.overflow, 1u);
}
