// How many different digests the changed chunks have, about: by this the host gives the history its size before it is
// filled. A HyperLogLog (Flajolet et al., 2007) of 4096 registers, right to 2 % in two of three cases.
#pragma once

#include "checkpoint.cuh"

constexpr uint32_t SKETCH_REGISTERS = 4096;

__device__ inline void sketch_chunk(const Checkpoint &checkpoint, Digest digest) {
    uint32_t *place = checkpoint.sketch + digest.second % SKETCH_REGISTERS;
    uint32_t rank = __clzll(digest.first) + 1;
    if (load_shared_by_all(place) < rank) atomicMax(place, rank);
}
