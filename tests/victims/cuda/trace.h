// What the conformance program says: a line for each call with its result's name, and lines of facts that are the same on every
// machine. A result that is not wanted ends nothing, because the trace shows it.
#pragma once

#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <vector>

// All names are asked for at once, because a driver that is locked may not answer.
inline const char *name_of(CUresult result) {
    static const std::vector<const char *> names = [] {
        std::vector<const char *> names(1000, nullptr);
        for (size_t error = 0; error < names.size(); ++error) cuGetErrorName(CUresult(error), &names[error]);
        return names;
    }();
    const char *name = size_t(result) < names.size() ? names[size_t(result)] : nullptr;
    return name == nullptr ? "an error without a name" : name;
}

inline void begin(const char *name) { printf("== %s\n", name); }

inline CUresult say(const char *what, CUresult result) {
    printf("%s: %s\n", what, name_of(result));
    fflush(stdout);
    return result;
}

inline void fact(const char *what, bool holds) {
    printf("%s: %s\n", what, holds ? "yes" : "NO");
    fflush(stdout);
}

inline void number(const char *what, long long value) {
    printf("%s: %lld\n", what, value);
    fflush(stdout);
}

// The call as it is written, and its result.
#define SAY(call) say(#call, call)
// Only what goes wrong is said.
#define MUST(call)                                                                                                              \
    do {                                                                                                                        \
        CUresult must_result = call;                                                                                            \
        if (must_result != CUDA_SUCCESS) printf("%s FAILED: %s\n", #call, name_of(must_result)), fflush(stdout);                \
    } while (0)

template <typename T> T *pointer(CUdeviceptr address) { return reinterpret_cast<T *>(address); }

// The words there, wherever it is.
inline std::vector<uint32_t> words_at(CUdeviceptr address, size_t count) {
    std::vector<uint32_t> words(count);
    MUST(cuMemcpyDtoH(words.data(), address, count * 4));
    return words;
}

inline bool all_are(CUdeviceptr address, size_t count, uint32_t value) {
    for (uint32_t word : words_at(address, count))
        if (word != value) return false;
    return true;
}

template <typename T> T attribute(CUpointer_attribute which, CUdeviceptr address) {
    T value = {};
    MUST(cuPointerGetAttribute(&value, which, address));
    return value;
}
