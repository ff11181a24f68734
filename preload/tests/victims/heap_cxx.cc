// operator new and operator delete in all their forms, large and small, and the exception of one that fails.
#include "heap_table.h"
#include <cstring>
#include <limits>
#include <new>
#include <vector>

static void check(void *start, size_t bytes)
{
    expect(start);
    memset(start, 0x5a, bytes);
    expect(recorded(start) == (bytes >= 65536 ? bytes : 0));
}

struct alignas(128) Aligned {
    char bytes[128];
};

static int run()
{
    for (size_t bytes : { size_t(1), size_t(65000), size_t(65536), size_t(10) << 20 }) {
        const auto wide = std::align_val_t(256);
        void *start;
        check(start = ::operator new(bytes), bytes);
        ::operator delete(start);
        expect(!recorded(start));
        check(start = ::operator new(bytes), bytes);
        ::operator delete(start, bytes);
        expect(!recorded(start));
        check(start = ::operator new[](bytes), bytes);
        ::operator delete[](start);
        expect(!recorded(start));
        check(start = ::operator new[](bytes), bytes);
        ::operator delete[](start, bytes);
        expect(!recorded(start));
        check(start = ::operator new(bytes, std::nothrow), bytes);
        ::operator delete(start, std::nothrow);
        expect(!recorded(start));
        check(start = ::operator new[](bytes, std::nothrow), bytes);
        ::operator delete[](start, std::nothrow);
        expect(!recorded(start));
        check(start = ::operator new(bytes, wide), bytes);
        expect(uintptr_t(start) % 256 == 0);
        ::operator delete(start, wide);
        expect(!recorded(start));
        check(start = ::operator new[](bytes, wide), bytes);
        ::operator delete[](start, wide);
        expect(!recorded(start));
        check(start = ::operator new(bytes, wide), bytes);
        ::operator delete(start, bytes, wide);
        expect(!recorded(start));
        check(start = ::operator new[](bytes, wide), bytes);
        ::operator delete[](start, bytes, wide);
        expect(!recorded(start));
        check(start = ::operator new(bytes, wide, std::nothrow), bytes);
        ::operator delete(start, wide, std::nothrow);
        expect(!recorded(start));
        check(start = ::operator new[](bytes, wide, std::nothrow), bytes);
        ::operator delete[](start, wide, std::nothrow);
        expect(!recorded(start));
    }
    std::vector<Aligned> numbers(1000);
    expect(recorded(numbers.data()) == 128000);
    numbers.resize(2000);
    expect(recorded(numbers.data()) == 256000);

    // The exception passes our frames on its way out of the allocator.
    volatile size_t huge = std::numeric_limits<size_t>::max() / 4;
    int caught = 0;
    for (int i = 0; i < 3; i++)
        try {
            void *never = ::operator new(huge);
            expect(!never);
        } catch (const std::bad_alloc &) {
            caught++;
        }
    expect(caught == 3);
    expect(!::operator new(huge, std::nothrow));
    // After it, all is as before.
    expect(recorded(std::vector<char>(100000).data()) == 100000);
    return 0;
}

// Called by a program that has loaded this as a library, or that this is.
extern "C" int heap_cxx() { return run(); }

#ifndef LIBRARY
int main()
{
    run();
    puts("done");
}
#endif
