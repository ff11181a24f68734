// Calls the entry points that pass the gate, on a driver that only keeps what it was called with (echo.cc).
//
//   gated DRIVER             each of gated.h by itself: the same arguments arrive, and it is found by name and version
//   gated DRIVER nested      one of them inside of another, when it is told to
//   gated DRIVER NAME...     all of these at once, each in a thread, when it is told to
#include "echo.h"
#include "waits.h"

// With this, the types of every version are declared, also of those that nobody calls any more.
#define __CUDA_API_VERSION_INTERNAL
#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

static void *driver;
static decltype(&echo_of) of;
static decltype(&echo_find_next) find_next;
static decltype(&echo_fail_next) fail_next;
static CUresult (*get)(const char *, void **, int, cuuint64_t, int *);

// A number as an argument, and what there is of it in a register.
template <typename T> T as_argument(Word number) {
    T argument = {};
    memcpy(&argument, &number, sizeof argument);
    return argument;
}
template <typename T> bool arrived(Word word, Word number) {
    constexpr size_t bytes = sizeof(T);
    return memcmp(&word, &number, bytes) == 0;
}

template <typename... Arguments, size_t... At>
static void call(const char *symbol, CUresult (*function)(Arguments...), std::index_sequence<At...>) {
    Echo *echo = of(symbol);
    const Word numbers[] = {At * 17 + 3 ...};
    // A call that fails: of one that succeeds, some hooks look behind the pointers.
    fail_next(CUDA_ERROR_UNKNOWN);
    expect(function(as_argument<Arguments>(numbers[At])...) == CUDA_ERROR_UNKNOWN);
    const bool came[] = {arrived<Arguments>(echo->arguments[At], numbers[At])...};
    for (bool one : came)
        if (!one) printf("%s: other arguments\n", symbol), exit(1);
    if (echo->calls != 1) printf("%s: called %d times\n", symbol, int(echo->calls)), exit(1);
}

template <typename... Arguments>
static void check(const char *symbol, const char *base, int version, bool per_thread, CUresult (*)(Arguments...)) {
    void *found = nullptr;
    find_next(symbol);
    cuuint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    expect(get(base, &found, version, flags, nullptr) == CUDA_SUCCESS);
    Dl_info object;
    expect(dladdr(found, &object));
    bool is_hook = strstr(object.dli_fname, "libckpt.so") && object.dli_sname && strcmp(object.dli_sname, symbol) == 0;
    if (!is_hook) printf("%s %d: %s of %s\n", base, version, object.dli_sname, object.dli_fname), exit(1);
    if (dlsym(driver, symbol) != found) printf("%s: another one by its symbol\n", symbol), exit(1);
    call(symbol, reinterpret_cast<CUresult (*)(Arguments...)>(found), std::index_sequence_for<Arguments...>());
}

static int each_by_itself() {
    int count = 0;
#define X(symbol, base, version, suffix)                                                                                       \
    check(#symbol, #base, version, #suffix[0] != 0, static_cast<PFN_##base##_v##version##suffix>(nullptr)), ++count;
#include "gated.h"
#undef X
    printf("%d entry points\n", count);
    return 0;
}

static int all_at_once(char **names, int count) {
    using Any = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
    // Every argument points to it: the hooks that record look behind pointers.
    alignas(64) static Word behind[1024];
    std::vector<std::thread> threads;
    std::vector<uint64_t> before;
    for (int at = 0; at < count; ++at) before.push_back(of(names[at])->calls);
    auto called = [&] {
        int sum = 0;
        for (int at = 0; at < count; ++at) sum += of(names[at])->calls != before[size_t(at)];
        return sum;
    };
    wait_after("ready");
    for (int at = 0; at < count; ++at) {
        Any function = reinterpret_cast<Any>(dlsym(driver, names[at]));
        threads.emplace_back([=] {
            Word place = Word(behind);
            function(place, place, place, place, place, place, place, place, place, place, place, place, place, place);
        });
    }
    wait_after("begun");
    printf("called while held: %d\n", called());
    wait_after("looked");
    for (std::thread &thread : threads) thread.join();
    printf("called: %d\n", called());
    return 0;
}

static CUresult (*fill)(CUdeviceptr, unsigned char, size_t);

static int nested() {
    auto call_back = reinterpret_cast<decltype(&echo_call_back)>(dlsym(driver, "echo_call_back"));
    auto copy = reinterpret_cast<CUresult (*)(CUdeviceptr, CUdeviceptr, size_t)>(dlsym(driver, "cuMemcpy"));
    fill = reinterpret_cast<decltype(fill)>(dlsym(driver, "cuMemsetD8_v2"));
    call_back([] {
        wait_after("inside");
        expect(fill(0, 0, 0) == CUDA_SUCCESS);
    });
    expect(copy(0, 0, 0) == CUDA_SUCCESS);
    wait_after("outside");
    return 0;
}

int main(int argc, char **argv) {
    expect(argc >= 2);
    wait_by_signal();
    driver = dlopen(argv[1], RTLD_NOW);
    expect(driver);
    of = reinterpret_cast<decltype(of)>(dlsym(driver, "echo_of"));
    find_next = reinterpret_cast<decltype(find_next)>(dlsym(driver, "echo_find_next"));
    fail_next = reinterpret_cast<decltype(fail_next)>(dlsym(driver, "echo_fail_next"));
    get = reinterpret_cast<decltype(get)>(dlsym(driver, "cuGetProcAddress_v2"));
    expect(of && find_next && fail_next && get);
    if (argc == 2) return each_by_itself();
    printf("control %llx\n", (unsigned long long)(uintptr_t)dlsym(RTLD_DEFAULT, "ckpt_control"));
    static Word context = 0x1000;
    auto retain = reinterpret_cast<CUresult (*)(void *, CUdevice)>(dlsym(driver, "cuDevicePrimaryCtxRetain"));
    expect(retain(&context, 0) == CUDA_SUCCESS);
    if (strcmp(argv[2], "nested") == 0) return nested();
    return all_at_once(argv + 2, argc - 2);
}
