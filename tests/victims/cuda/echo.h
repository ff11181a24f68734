// What a program finds in the driver of echo.cc.
#pragma once

#include <atomic>
#include <cstdint>

using Word = uint64_t;
constexpr int ECHO_WORDS = 14;

struct Echo {
    const char *name;
    void *address;
    Echo *next;
    std::atomic<uint64_t> calls{0};
    Word arguments[ECHO_WORDS] = {};
    Echo(const char *name, void *address);
};

extern "C" Echo *echo_of(const char *name);
extern "C" void echo_find_next(const char *name);
// The calling thread's next call of the driver returns this.
extern "C" void echo_fail_next(int error);
// The calling thread's next call of the driver calls this once it is inside.
extern "C" void echo_call_back(void (*function)());
