// A CUDA driver with all names that libckpt.so knows (echo_names.h, made from that list), which keeps what each was called with
// and succeeds, unless it is told to fail. What cuGetProcAddress is to find, it is told before.
#include "echo.h"

#include <cstring>

static Echo *first = nullptr;
static thread_local void *to_be_found = nullptr;

Echo::Echo(const char *name, void *address) : name(name), address(address), next(first) { first = this; }

extern "C" Echo *echo_of(const char *name) {
    Echo *function = first;
    while (function && strcmp(function->name, name) != 0) function = function->next;
    return function;
}

extern "C" void echo_find_next(const char *name) { to_be_found = echo_of(name)->address; }

extern "C" int cuGetProcAddress_v2(const char *, void **address, int, uint64_t, int *) {
    *address = to_be_found;
    return 0;
}

static thread_local int next_result = 0;

extern "C" void echo_fail_next(int error) { next_result = error; }

static thread_local void (*to_be_called)() = nullptr;

extern "C" void echo_call_back(void (*function)()) { to_be_called = function; }

static void call_back() {
    auto function = to_be_called;
    to_be_called = nullptr;
    if (function) function();
}

// All arguments come as words: six in registers, the others on the stack, where whatever is behind them is read too.
#define PARAMETERS                                                                                                             \
    Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k, Word l, Word m, Word n
#define X(name)                                                                                                                \
    extern "C" int name(PARAMETERS);                                                                                           \
    static Echo echo_##name(#name, reinterpret_cast<void *>(name));                                                            \
    extern "C" int name(PARAMETERS) {                                                                                          \
        const Word words[ECHO_WORDS] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n};                                             \
        memcpy(echo_##name.arguments, words, sizeof words);                                                                    \
        ++echo_##name.calls;                                                                                                   \
        const int result = next_result;                                                                                        \
        next_result = 0;                                                                                                       \
        call_back();                                                                                                           \
        return result;                                                                                                         \
    }
#include "echo_names.h"
