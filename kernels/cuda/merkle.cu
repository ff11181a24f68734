// The kernels of the engine, by the names under which the host finds them (src/device/kernels.rs). Each but `write_entries`,
// `gather` and those of the history takes a checkpoint and nothing else.
//
//   hash_*          digests of chunks                          warps take groups of 32 chunks in turn
//   sketch          how many different digests are new         a block for each tile of 1024 chunks
//   claim_chunks    digests into the history                   a block for each tile
//   join_*_tile     labels of chunks and of nodes over them    a block for each tile
//   join_*_region   labels of the nodes above                  a block for each region
//   mark_topmost    which nodes are written down               a block for each tile
//   write_entries   writes them                                a block for each tile of a window
//   gather          the bytes of first occurrences             a block for each tile of a window
//   forget, move    of the history                             threads take entries in turn
#include "forget.cuh"
#include "gather.cuh"
#include "hash_chunks.cuh"
#include "topmost.cuh"

// With blocks of so many threads, at least so many of them on a multiprocessor.
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

KERNEL(HASH_THREADS, 4) hash_by_128(const __grid_constant__ Checkpoint checkpoint) { hash_pieces<Pieces16<8>>(checkpoint, BY_128); }
KERNEL(HASH_THREADS, 8) hash_by_64(const __grid_constant__ Checkpoint checkpoint) { hash_pieces<Pieces16<4>>(checkpoint, BY_64); }
KERNEL(HASH_THREADS, 8) hash_by_32(const __grid_constant__ Checkpoint checkpoint) { hash_pieces<Pieces16<2>>(checkpoint, BY_32); }
KERNEL(HASH_THREADS, 4) hash_by_words(const __grid_constant__ Checkpoint checkpoint) { hash_pieces<Pieces4>(checkpoint, BY_WORDS); }
KERNEL(HASH_THREADS, 8) hash_by_bytes(const __grid_constant__ Checkpoint checkpoint) { hash_crooked(checkpoint); }

KERNEL(THREADS, 6) sketch(const __grid_constant__ Checkpoint checkpoint) { sketch_changed(checkpoint); }

KERNEL(THREADS, 6) claim_chunks_tile(const __grid_constant__ Checkpoint checkpoint) { claim_chunks(checkpoint); }

KERNEL(THREADS, 6) label_chunks_tile(const __grid_constant__ Checkpoint checkpoint) { label_chunks(checkpoint); }

KERNEL(THREADS, 6) join_firsts_tile(const __grid_constant__ Checkpoint checkpoint) {
    climb_tile<JoinFirsts>(checkpoint);
}

KERNEL(THREADS, 6) join_firsts_region(const __grid_constant__ Checkpoint checkpoint) {
    climb_region<JoinFirsts>(checkpoint, checkpoint.regions[blockIdx.x]);
}

KERNEL(THREADS, 6) join_shifts_tile(const __grid_constant__ Checkpoint checkpoint) {
    climb_tile<JoinShifts>(checkpoint);
}

KERNEL(THREADS, 6) join_shifts_region(const __grid_constant__ Checkpoint checkpoint) {
    climb_region<JoinShifts>(checkpoint, checkpoint.regions[blockIdx.x]);
}

KERNEL(THREADS, 6) mark_topmost_tile(const __grid_constant__ Checkpoint checkpoint) { mark_topmost(checkpoint); }

KERNEL(THREADS, 6) write_entries_tile(const __grid_constant__ Checkpoint checkpoint, const __grid_constant__ EntryWindow window) { write_entries(checkpoint, window); }

KERNEL(THREADS, 6) gather_tile(const __grid_constant__ Checkpoint checkpoint, const __grid_constant__ Window window) { gather(checkpoint, window); }

KERNEL(THREADS, 6) forget_entries(const __grid_constant__ Segment segment, const __grid_constant__ Gone gone) { forget(segment, gone); }

KERNEL(THREADS, 6) move_entries(const __grid_constant__ Segment from, const __grid_constant__ History to) { move(from, to); }
