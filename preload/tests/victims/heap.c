/* Each function of the C heap, large and small: what is recorded, and that the result is the allocator's own. The first
 * argument is the smallest size that is recorded, or 0 for none; the second the allocator: not all agree on details. */
#include "heap_table.h"
#include <errno.h>
#include <malloc.h>
#include <string.h>

static size_t min_bytes;

/* What ought to be recorded for an allocation of so many bytes. */
static uint64_t expected(size_t bytes)
{
    return min_bytes && bytes >= min_bytes ? bytes : 0;
}

/* Writes all of it, looks at the record, and frees it. */
static void check(void *start, size_t bytes, size_t alignment)
{
    expect(start && (uintptr_t)start % alignment == 0);
    memset(start, 0xa5, bytes);
    expect(recorded(start) == expected(bytes));
    volatile uintptr_t address = (uintptr_t)start;
    free(start);
    expect(!recorded((void *)address));
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = { 1, 100, 4096, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 20 << 20 };
    void *start, *moved;
    int is_glibc = argc > 2 && !strcmp(argv[2], "glibc");
    /* Libraries whose constructors are older than ours may have allocated before the wish was known. */
    uint64_t last_id = table()->last_id;
    min_bytes = strtoul(argv[1], 0, 10);
    expect(table()->min_bytes == (min_bytes ? min_bytes : UINT64_MAX));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i];
        check(malloc(bytes), bytes, 8);
        check(calloc(1, bytes), bytes, 8);
        check(realloc(0, bytes), bytes, 8);
        check(memalign(256, bytes), bytes, 256);
        check(aligned_alloc(4096, bytes), bytes, 4096);
        check(valloc(bytes), bytes, 4096);
        if (is_glibc)
            check(pvalloc(bytes), bytes, 4096);
        expect(posix_memalign(&start, 1 << 16, bytes) == 0);
        check(start, bytes, 1 << 16);
        start = calloc(bytes, 3);
        for (size_t at = 0; at < 3 * bytes; at++)
            expect(((char *)start)[at] == 0);
        check(start, 3 * bytes, 8);
    }

    /* It stays the same allocation when it is resized, moved, or cannot be resized. */
    start = malloc(200000);
    strcpy(start, "content");
    if (min_bytes == 65536) {
        uint64_t id = record_of(start)->id;
        expect((moved = realloc(start, 40 << 20)) && !strcmp(moved, "content"));
        expect(moved == start || !recorded(start));
        expect(recorded(moved) == 40 << 20 && record_of(moved)->id == id);
        volatile size_t huge = (size_t)-1 / 2;
        errno = 0;
        expect(!realloc(moved, huge) && (!is_glibc || errno == ENOMEM));
        expect(recorded(moved) == 40 << 20 && record_of(moved)->id == id && !strcmp(moved, "content"));
        expect((start = realloc(moved, 100)) && !recorded(start) && !strcmp(start, "content"));
        expect((start = realloc(start, 70000)) && recorded(start) == 70000 && record_of(start)->id > id);
        volatile uintptr_t address = (uintptr_t)start;
        start = realloc(start, 0);
        expect(!recorded((void *)address) && (!is_glibc || !start));
        free(start);
        start = 0;
    }
    free(start);
    free(0);

    /* What the allocator refuses, it refuses as ever. */
    volatile size_t huge = (size_t)-1 / 2, many = (size_t)1 << 33;
    errno = 0;
    expect(!malloc(huge) && errno == ENOMEM);
    errno = 0;
    expect(!calloc(many, many) && (!is_glibc || errno == ENOMEM));
    expect(posix_memalign(&start, 3, 1 << 20) == EINVAL);
    errno = EAGAIN;
    free(malloc(1 << 20));
    expect(errno == EAGAIN);

    /* The call site is in this function. */
    start = malloc(1 << 20);
    if (min_bytes) {
        expect(record_of(start)->call_site - (uintptr_t)main < 20000);
        expect(table()->lost == 0 && table()->last_id > 0);
    } else {
        expect(table()->last_id == last_id);
    }
    free(start);
    puts("done");
    return 0;
}
