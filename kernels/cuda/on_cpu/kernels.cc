// The kernels for the CPU.
#include <string.h>

#include "language.h"

#include "../merkle.cu"

namespace workload {
#include "../workload.cu"
}

#include "kernels.h"

#define NAMED(name) on_cpu::kernel(#name, name)

const on_cpu::Kernel *on_cpu::kernel_named(const char *name) {
    static const Kernel kernels[] = {
        NAMED(hash_by_128),        NAMED(hash_by_64),       NAMED(hash_by_32),         NAMED(hash_by_words),
        NAMED(hash_by_bytes),      NAMED(sketch),           NAMED(claim_chunks_tile),  NAMED(label_chunks_tile),
        NAMED(join_firsts_tile),   NAMED(join_firsts_region), NAMED(join_shifts_tile), NAMED(join_shifts_region),
        NAMED(mark_topmost_tile),  NAMED(write_entries_tile), NAMED(gather_tile),      NAMED(forget_entries),
        NAMED(move_entries),
        on_cpu::kernel("change_chunks", workload::change_chunks),
    };
    for (const Kernel &kernel : kernels)
        if (strcmp(kernel.name, name) == 0) return &kernel;
    return nullptr;
}
