// Kernels of the test programs, so small that what they do can be said in a line. They use what kernels/cuda/on_cpu/language.h
// has too, because the same source runs on the CPU.
#include <stdint.h>

#ifdef __CUDACC__
#define VARIABLE(type, name, count) __device__ type name[count]
#define MANAGED_VARIABLE(type, name, count) __managed__ type name[count]
#else // on the CPU it lies where its module was loaded
#define VARIABLE(type, name, count) type *name
#define MANAGED_VARIABLE(type, name, count) type *name
#endif

extern "C" {

VARIABLE(uint32_t, launches, 4);
MANAGED_VARIABLE(uint32_t, launches_managed, 4);

struct Node {
    const Node *next;
    uint64_t value;
};
}

#include "words.cu"

extern "C" {

// y = a * x + y
__global__ void saxpy(float *y, const float *x, float a, uint64_t count) {
    uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) y[at] = a * x[at] + y[at];
}

// The sum of the values of a list, whose nodes are anywhere on the device.
__global__ void sum_list(const Node *first, uint64_t *sum) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    *sum = 0;
    for (const Node *node = first; node != nullptr; node = node->next) *sum += node->value;
}

// Counts its launches in the module's variables.
__global__ void count_launch() {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    launches[0] += 1;
    launches_managed[0] += 1;
}
}
