// The engine's kernels, and the workload's.
#include "language.h"

#include "../merkle.cu"

namespace workload {
#include "../workload.cu"
}

#include "kernels.h"

#define NAMED(name) {#name, name}

static on_cpu::Added added({
    NAMED(hash_by_128),       NAMED(hash_by_64),         NAMED(hash_by_32),        NAMED(hash_by_words),
    NAMED(hash_by_bytes),     NAMED(sketch),             NAMED(claim_chunks_tile), NAMED(label_chunks_tile),
    NAMED(join_firsts_tile),  NAMED(join_firsts_region), NAMED(join_shifts_tile),  NAMED(join_shifts_region),
    NAMED(mark_topmost_tile), NAMED(write_entries_tile), NAMED(gather_tile),       NAMED(forget_entries),
    NAMED(move_entries),      {"change_chunks", workload::change_chunks},
});
