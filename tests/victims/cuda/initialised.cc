// Begins to use the driver, and no device; later one.
#include "waits.h"

#include <cuda.h>

int main() {
    wait_by_signal();
    int devices;
    expect(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices == 1);
    wait_after("initialised");
    CUcontext context;
    CUdeviceptr memory;
    unsigned word = 0;
    expect(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS);
    expect(cuMemAlloc(&memory, 4) == CUDA_SUCCESS && cuMemsetD32(memory, 7, 1) == CUDA_SUCCESS);
    wait_after("used");
    expect(cuMemcpyDtoH(&word, memory, 4) == CUDA_SUCCESS && word == 7);
    puts("done");
}
