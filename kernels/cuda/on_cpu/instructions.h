// instructions.cuh for the CPU. Copies have been made as soon as they are started.
#pragma once

struct alignas(16) Word {
    uint64_t x, y;
};

template <typename T> inline void start_copy(T *to, const T *from) { *to = *from; }
inline void close_group() {}
template <int OPEN> inline void wait_for_groups() {}

template <typename T> inline T load_shared_by_all(const T *place) { return __atomic_load_n(place, __ATOMIC_RELAXED); }

inline uint64_t swap_if_zero(uint64_t *place, uint64_t wanted) {
    uint64_t seen = 0;
    __atomic_compare_exchange_n(place, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return seen;
}

inline void raise_to(uint64_t *place, uint64_t least) { atomicMax(place, least); }
inline void add_to(uint64_t *place, uint64_t more) { atomicAdd(place, more); }
