/* What ckpt_classify says of memory of the host: inside, at the start and at the end of large allocations, and of the
 * rest. */
#include "ckpt.h"
#include "heap_table.h"
#include <errno.h>

static struct ckpt_memory ask(const void *pointer)
{
    struct ckpt_memory memory;
    expect(ckpt_classify(pointer, &memory) == 0);
    expect(memory.kind == CKPT_MEMORY_HOST && memory.device == -1);
    return memory;
}

static void lies_in(const char *pointer, const char *start, size_t bytes)
{
    struct ckpt_memory memory = ask(pointer);
    expect(memory.start == start && memory.bytes == bytes && memory.id == record_of(start)->id);
}

static void lies_nowhere(const void *pointer)
{
    struct ckpt_memory memory = ask(pointer);
    expect(!memory.start && !memory.bytes && !memory.id);
}

int main(void)
{
    static char of_library[1 << 20];
    char on_stack[100];
    /* Over the end of an area of the table; nothing is written to it. */
    const size_t huge = (size_t)9 << 30;
    char *large = malloc(huge), *medium = malloc(100000), *small = malloc(1000);
    expect(large && medium && small);
    for (size_t at = 0; at < huge; at += huge / 7)
        lies_in(large + at, large, huge);
    lies_in(large + huge - 1, large, huge);
    lies_in(medium + 99999, medium, 100000);
    lies_in(medium, medium, 100000);
    lies_nowhere(large - 1);
    lies_nowhere(large + huge);
    lies_nowhere(medium + 100000);
    lies_nowhere(small);
    lies_nowhere(on_stack);
    lies_nowhere(of_library);
    lies_nowhere((void *)main);
    lies_nowhere((void *)16);
    free(medium);
    lies_nowhere(medium);
    struct ckpt_memory memory;
    errno = 0;
    expect(ckpt_classify(0, &memory) == -1 && errno == EINVAL);
    expect(ckpt_classify(small, 0) == -1);
    puts("done");
    return 0;
}
