// An open-addressing table of digests in device memory. A slot is one 32-byte sector, the least that memory delivers,
// so that a digest and its owner cost one access. Slots are never emptied while a kernel runs.
#pragma once

#include "t7_instructions.cuh"

struct alignas(32) Slot {
    Digest key; // all zero: empty
    // The complement of (checkpoint << 32 | node), so that zero is "none" and the greatest is the earliest. The
    // earliest wins whatever the order in which threads come: the table does not depend on their timing.
    uint64_t owner_complement;
    uint64_t unused;
};

struct Table {
    Slot *slots;
    uint32_t mask; // capacity - 1, a power of two less one
};

__host__ __device__ inline uint64_t owner_of(uint32_t checkpoint, uint32_t node) {
    return uint64_t(checkpoint) << 32 | node;
}

// No key has an empty half, because zero stands for "not written". This makes (0, x) and (1, x) one key, which is no
// likelier to happen than two chunks of one digest.
__host__ __device__ inline Digest key_of(Digest digest) {
    return {digest.first + (digest.first == 0), digest.second + (digest.second == 0)};
}

__device__ inline Slot *slot_at(Table table, Digest key, uint32_t step) {
    return table.slots + ((uint32_t(key.first) + step) & table.mask);
}

// Three ways to insert a key. A full table takes no more: the count at the end shows it.

// A single 128-bit compare-and-swap for each slot that is looked at.
struct ClaimWhole {
    static __device__ void insert(Table table, Digest key, uint64_t owner_complement) {
        for (uint32_t step = 0; step <= table.mask; ++step) {
            Slot *slot = slot_at(table, key, step);
            Digest found = swap_if_empty(&slot->key, key);
            if (found == Digest{0, 0} || found == key) return raise_to(&slot->owner_complement, owner_complement);
        }
    }
};

// A 64-bit compare-and-swap on the first half, then a store of the second. Who finds its own first half without a
// second one looks again. The claimer stores before it waits for anybody, so two threads of a warp cannot lock each
// other out.
struct ClaimHalves {
    static __device__ void insert(Table table, Digest key, uint64_t owner_complement) {
        for (uint32_t step = 0; step <= table.mask;) {
            Slot *slot = slot_at(table, key, step);
            uint64_t first = swap_if_empty(&slot->key.first, key.first);
            uint64_t second = 0;
            if (first == 0) {
                store_for_all(&slot->key.second, key.second);
                second = key.second;
            } else if (first == key.first) {
                second = load_from_all(&slot->key.second);
                if (second == 0) continue;
            }
            if (second == key.second) return raise_to(&slot->owner_complement, owner_complement);
            ++step;
        }
    }
};

// A load first, and the 128-bit compare-and-swap only where the slot may be empty: meant for data most of which is
// known. A half once written never changes, so what a load shows of another key is true even if it shows only one half.
// The owner that it shows may be out of date, which costs no more than a needless attempt to raise it.
struct ClaimAfterLook {
    static __device__ void insert(Table table, Digest key, uint64_t owner_complement) {
        for (uint32_t step = 0; step <= table.mask; ++step) {
            Slot *slot = slot_at(table, key, step);
            Word seen = load_from_cache(&slot->key);
            uint64_t seen_owner = load_from_all(&slot->owner_complement);
            if (seen.x != 0 && seen.x != key.first) continue;
            if (seen.x == key.first && seen.y == key.second) {
                if (seen_owner < owner_complement) raise_to(&slot->owner_complement, owner_complement);
                return;
            }
            Digest found = swap_if_empty(&slot->key, key);
            if (found == Digest{0, 0} || found == key) return raise_to(&slot->owner_complement, owner_complement);
        }
    }
};

// What a kernel does with a digest: store it, ...
struct Store {
    Digest *digests;

    __device__ void operator()(uint32_t chunk, Digest digest) const { digests[chunk] = digest; }
};

// ... or insert it.
template <typename Claim> struct Insert {
    Table table;
    uint32_t checkpoint;

    __device__ void operator()(uint32_t chunk, Digest digest) const {
        Claim::insert(table, key_of(digest), ~owner_of(checkpoint, chunk));
    }
};

// For a table that nobody writes.
__device__ inline const Slot *find(Table table, Digest key) {
    for (uint32_t step = 0; step <= table.mask; ++step) {
        const Slot *slot = slot_at(table, key, step);
        if (slot->key == key) return slot;
        if (slot->key == Digest{0, 0}) return nullptr;
    }
    return nullptr;
}
