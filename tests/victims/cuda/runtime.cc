// Asks the CUDA runtime for memory.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
    void *place;
    printf("%d\n", cudaMalloc(&place, 1 << 20));
}
