// T11: which memory can be exported, and which waits work while another thread captures a stream.
//
//     t11_import export     memory that was imported: exported again where the first handle is alive, and where it is not
//     t11_import capture    a kernel runs in one stream, another stream is captured by another thread: does a free wait for the kernel?
//
// `export` passes if imported memory cannot be exported and a copy of it on the device can. `capture` passes if
// cuCtxSynchronize is refused then, and cuMemAlloc and cuMemFree of a byte are not, and wait until the kernel has ended.
#include <thread>

#include "pattern.cuh"
#include "vmm.cuh"

static __global__ void spin(long long cycles) {
    long long begun = clock64();
    while (clock64() - begun < cycles) {
    }
}

static CUresult exported(CUmemGenericAllocationHandle handle, int &descriptor) {
    return driver().cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static int export_again() {
    RT(cudaFree(nullptr));
    CUmemAllocationProp properties = device_memory(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    Region region = reserve(1024 * MIB, properties);
    back(region, properties);
    fill(region.as<void>(), region.bytes, 9);
    int first, again, third;
    CU(exported(region.handle, first));
    CU(exported(region.handle, again));
    CUmemGenericAllocationHandle imported;
    auto import = [&](int descriptor) {
        CU(driver().cuMemImportFromShareableHandle(&imported, reinterpret_cast<void *>(intptr_t(descriptor)),
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    };
    import(first);
    CUresult while_alive = exported(imported, third);
    note("imported while the first handle is alive%s: exported: %s", imported == region.handle ? ", the same handle" : "",
         cu_name(while_alive));
    CU(driver().cuMemRelease(imported));
    release(region);
    import(again);
    region.handle = imported;
    map(region);
    CUresult after = exported(imported, third);
    note("imported when it was mapped no more: exported: %s", cu_name(after));
    Region copy = reserve(region.bytes, properties);
    double begun = now_s();
    back(copy, properties);
    double made_s = now_s() - begun;
    begun = now_s();
    RT(cudaMemcpy(copy.as<void>(), region.as<void>(), region.bytes, cudaMemcpyDeviceToDevice));
    RT(cudaDeviceSynchronize());
    double copied_s = now_s() - begun;
    CUresult of_copy = exported(copy.handle, third);
    unsigned long long wrong = wrong_words(copy.as<void>(), copy.bytes, 9);
    return result("T11", after == CUDA_ERROR_INVALID_VALUE && of_copy == CUDA_SUCCESS && wrong == 0,
                  "export: imported: %s (first handle alive: %s); a copy: %s, made in %.2f ms, copied in %.2f ms for 1 GiB", cu_name(after),
                  cu_name(while_alive), cu_name(of_copy), made_s * 1e3, copied_s * 1e3);
}

static int capture() {
    int kilohertz;
    RT(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
    cudaStream_t busy, captured;
    RT(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
    RT(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
    spin<<<1, 1, 0, busy>>>(1000);
    RT(cudaDeviceSynchronize());
    spin<<<1, 1, 0, busy>>>(500ll * kilohertz);
    RT(cudaGetLastError());
    std::thread([&] { RT(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal)); }).join();
    cudaError_t synchronised = cudaDeviceSynchronize();
    bool ran = cudaStreamQuery(busy) == cudaErrorNotReady;
    void *memory = nullptr;
    double begun = now_s();
    cudaError_t made = cudaMalloc(&memory, 1);
    double made_s = now_s() - begun;
    cudaError_t freed = cudaFree(memory);
    double freed_s = now_s() - begun - made_s;
    bool has_ended = cudaStreamQuery(busy) == cudaSuccess;
    return result("T11", synchronised == cudaErrorStreamCaptureUnsupported && ran && made == cudaSuccess && freed == cudaSuccess && has_ended,
                  "capture: synchronising: %s; the kernel %s; cudaMalloc: %s in %.2f ms; cudaFree: %s in %.2f ms, and the kernel %s",
                  cudaGetErrorName(synchronised), ran ? "runs" : "has ENDED", cudaGetErrorName(made), made_s * 1e3,
                  cudaGetErrorName(freed), freed_s * 1e3, has_ended ? "has ended" : "STILL RUNS");
}

int main(int count, char **arguments) {
    std::string what = count > 1 ? arguments[1] : "";
    if (what == "export") return export_again();
    if (what == "capture") return capture();
    return fprintf(stderr, "t11_import export|capture\n"), 2;
}
