/* The table of large allocations, read by the program itself through the control block (runtime/wire/src). */
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { GRANULES = 1 << 16 };

struct allocation {
    uint64_t id, bytes, call_site;
};
struct area {
    uint64_t address;
    const struct area *next;
    uint64_t unused[510], starts[GRANULES];
    struct allocation allocations[GRANULES];
};
struct allocations {
    uint64_t min_bytes;
    const struct area *areas;
    uint64_t last_id, lost;
};

static inline const struct allocations *table(void)
{
    const char *control = (const char *)dlsym(RTLD_DEFAULT, "ckpt_control");
    /* The last field but one. */
    return *(const struct allocations *const *)(control + *(const uint32_t *)(control + 12) - 16);
}

/* The record of the allocation at `start`, or null. */
static inline const struct allocation *record_of(const void *start)
{
    uint64_t address = (uint64_t)start;
    for (const struct area *area = table()->areas; area; area = area->next)
        if (area->address == address >> 32 << 32) {
            uint64_t granule = (address & 0xffffffff) >> 16;
            return area->starts[granule] == address ? &area->allocations[granule] : NULL;
        }
    return NULL;
}

/* Bytes that are recorded for `start`; 0 when nothing is. */
static inline uint64_t recorded(const void *start)
{
    const struct allocation *record = record_of(start);
    return record ? record->bytes : 0;
}

#define expect(condition)                                                                                              \
    do                                                                                                                 \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    while (0)
