// The kernels of the engine, by the names under which the host finds them (src/device/kernels.rs). Each but
// `write_entries_tile`, `gather_tile` and those of the history takes a checkpoint and nothing else.
//
//   hash_*              digests of chunks                          warps take groups of 32 chunks in turn
//   sketch              how many different digests are new         a block for each tile of 1024 chunks
//   claim_chunks_tile   digests into the history                   a block for each tile
//   label_chunks_tile   labels of chunks, without trees            a block for each tile
//   join_*_tile         labels of chunks and of nodes over them    a block for each tile
//   join_*_region       labels of the nodes above                  a block for each region
//   mark_topmost_tile   which nodes are written down               a block for each tile
//   write_entries_tile  writes them                                a block for each tile of a window
//   gather_tile         the bytes of first occurrences             a block for each tile of a window
//   forget_entries      of the history, as the next one            threads take entries in turn
//   move_entries        into another segment
#include "forget.cuh"
#include "gather.cuh"
#include "hash_chunks.cuh"
#include "topmost.cuh"

// A parameter that is read where the launch has put it.
#define AS_GIVEN const __grid_constant__

// With blocks of so many threads, at least so many of them on a multiprocessor.
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

KERNEL(HASH_THREADS, 4) hash_by_128(AS_GIVEN Checkpoint checkpoint) { hash_pieces<Pieces16<8>>(checkpoint, BY_128); }
KERNEL(HASH_THREADS, 8) hash_by_64(AS_GIVEN Checkpoint checkpoint) { hash_pieces<Pieces16<4>>(checkpoint, BY_64); }
KERNEL(HASH_THREADS, 8) hash_by_32(AS_GIVEN Checkpoint checkpoint) { hash_pieces<Pieces16<2>>(checkpoint, BY_32); }
KERNEL(HASH_THREADS, 4) hash_by_words(AS_GIVEN Checkpoint checkpoint) { hash_pieces<Pieces4>(checkpoint, BY_WORDS); }
KERNEL(HASH_THREADS, 8) hash_by_bytes(AS_GIVEN Checkpoint checkpoint) { hash_crooked(checkpoint); }

KERNEL(THREADS, 6) sketch(AS_GIVEN Checkpoint checkpoint) { sketch_changed(checkpoint); }

KERNEL(THREADS, 6) claim_chunks_tile(AS_GIVEN Checkpoint checkpoint) { claim_chunks(checkpoint); }

KERNEL(THREADS, 6) label_chunks_tile(AS_GIVEN Checkpoint checkpoint) { label_chunks(checkpoint); }

KERNEL(THREADS, 6) join_firsts_tile(AS_GIVEN Checkpoint checkpoint) {
    climb_tile<JoinFirsts>(checkpoint);
}

KERNEL(THREADS, 6) join_firsts_region(AS_GIVEN Checkpoint checkpoint) {
    climb_region<JoinFirsts>(checkpoint, checkpoint.regions[blockIdx.x]);
}

KERNEL(THREADS, 6) join_shifts_tile(AS_GIVEN Checkpoint checkpoint) {
    climb_tile<JoinShifts>(checkpoint);
}

KERNEL(THREADS, 6) join_shifts_region(AS_GIVEN Checkpoint checkpoint) {
    climb_region<JoinShifts>(checkpoint, checkpoint.regions[blockIdx.x]);
}

KERNEL(THREADS, 6) mark_topmost_tile(AS_GIVEN Checkpoint checkpoint) { mark_topmost(checkpoint); }

KERNEL(THREADS, 6) write_entries_tile(AS_GIVEN Checkpoint checkpoint, AS_GIVEN EntryWindow window) {
    write_entries(checkpoint, window);
}

KERNEL(THREADS, 6) gather_tile(AS_GIVEN Checkpoint checkpoint, AS_GIVEN Window window) { gather(checkpoint, window); }

KERNEL(THREADS, 6) forget_entries(AS_GIVEN Segment segment, AS_GIVEN Gone gone) { forget(segment, gone); }

KERNEL(THREADS, 6) move_entries(AS_GIVEN Segment from, AS_GIVEN History to) { move(from, to); }
