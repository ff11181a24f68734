// For T6 (scripts/gpu-experiments): what libckpt.so has recorded, in the words of that experiment's own hooks. Preloaded
// behind libckpt.so, whose table it reads through the control block (runtime/wire/src).
//
// T6_REPORT names the file that a line is added to when the program calls t6_report.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct allocation {
    uint64_t id, address, bytes, call_site, context, owner;
    uint32_t kind;
    int32_t device;
    uint64_t stream;
};
struct block {
    const struct block *next;
    uint64_t unused[7];
    struct allocation allocations[511];
};
struct allocations {
    uint64_t min_bytes, areas, last_id, lost;
    const struct block *cuda_blocks;
    uint64_t cuda_unknown;
};

enum kind { DEVICE = 1, MANAGED, PINNED, REGISTERED, MAPPED, ARRAY, GLOBAL, MANAGED_GLOBAL, GRAPH, IMPORTED, PHYSICAL };

// Whether the program has a reference to physical memory with that handle: then it has been counted.
static int is_held(const struct allocations *table, uint64_t handle) {
    for (const struct block *block = table->cuda_blocks; block; block = block->next)
        for (const struct allocation *it = block->allocations; it < block->allocations + 511; it++)
            if (it->id && it->kind == PHYSICAL && it->address == handle) return 1;
    return 0;
}

__attribute__((visibility("default"))) void t6_report(const char *what) {
    uint64_t device = 0, managed = 0, host = 0, pool = 0, vmm = 0, graph = 0, array = 0;
    const char *control = dlsym(RTLD_DEFAULT, "ckpt_control"), *path = getenv("T6_REPORT");
    if (!control || !path) return;
    // Fields are only ever added behind it.
    const size_t at = 96 + 2 * 128 + 3 * 4096 + 7 * 8;
    const struct allocations *table = *(const struct allocations *const *)(control + at);
    for (const struct block *block = table->cuda_blocks; block; block = block->next)
        for (const struct allocation *it = block->allocations; it < block->allocations + 511; it++)
            if (it->id) {
                switch (it->kind) {
                case DEVICE: *(it->owner ? &pool : &device) += it->bytes; break;
                case MANAGED: managed += it->bytes; break;
                case PINNED: host += it->bytes; break;
                case PHYSICAL: vmm += it->bytes; break;
                case MAPPED: vmm += is_held(table, it->owner) ? 0 : it->bytes; break;
                case GRAPH: graph += it->bytes; break;
                case ARRAY: array += it->bytes; break;
                default: break; // No memory of the device that an allocating call has taken.
                }
            }
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "live %s device %lu managed %lu host %lu pool %lu vmm %lu graph %lu array %lu\n"
                          "wrong %s unknown 0 twice 0 lost %lu unsized 0\n",
                          what, device, managed, host, pool, vmm, graph, array, what, table->lost + table->cuda_unknown);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && write(file, text, (size_t)length) != length) perror(path);
    if (file >= 0) close(file);
}
