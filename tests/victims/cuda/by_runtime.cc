// Allocations from functions of known names, by a runtime in a library of its own (small_runtime.cc) and by the driver.
#include "waits.h"

#include <cuda.h>

#include <cstddef>

extern "C" {
int cudaMalloc(void **place, size_t bytes);
int cudaMallocManaged(void **place, size_t bytes, unsigned flags);
int cudaMallocHost(void **place, size_t bytes);

__attribute__((noinline)) void make_weights() {
    void *place;
    expect(cudaMalloc(&place, 3000000) == 0);
}

__attribute__((noinline)) void make_table() {
    void *place;
    expect(cudaMallocManaged(&place, 200000, 1) == 0);
}

__attribute__((noinline)) void make_buffer() {
    void *place;
    expect(cudaMallocHost(&place, 100000) == 0);
}

__attribute__((noinline)) void make_without_runtime() {
    CUdeviceptr place;
    expect(cuMemAlloc(&place, 500000) == CUDA_SUCCESS);
}
}

int main() {
    wait_by_signal();
    make_weights();
    make_table();
    make_buffer();
    make_without_runtime();
    wait_after("allocated");
    puts("done");
}
