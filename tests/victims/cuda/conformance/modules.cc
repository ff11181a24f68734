// Modules, libraries, kernels and variables.
#include "groups.h"

void launch(CUfunction function, unsigned threads, std::vector<void *> parameters, CUstream stream) {
    MUST(cuLaunchKernel(function, 8, 1, 1, threads, 1, 1, 0, stream, parameters.data(), nullptr));
}

void modules() {
    begin("modules and kernels");
    CUmodule module, from_file;
    CUfunction fill, add, saxpy, list, none;
    CUdeviceptr words, variable;
    size_t bytes;
    int value;
    uint64_t count = 5000;
    uint32_t first = 41;
    SAY(cuModuleLoadData(&module, ptx.c_str()));
    SAY(cuModuleLoad(&from_file, ptx_path.c_str()));
    SAY(cuModuleUnload(from_file));
    SAY(cuModuleGetFunction(&none, module, "no_such_kernel"));
    SAY(cuModuleGetFunction(&fill, module, "fill_words"));
    SAY(cuModuleGetFunction(&add, module, "add_one"));
    SAY(cuModuleGetFunction(&saxpy, module, "saxpy"));
    SAY(cuModuleGetFunction(&list, module, "sum_list"));
    SAY(cuModuleGetGlobal(&variable, &bytes, module, "launches"));
    number("bytes", (long long)bytes);
    fact("zero at first", all_are(variable, 4, 0));
    SAY(cuModuleGetGlobal(&variable, &bytes, module, "no_such_variable"));
    SAY(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
    fact("a block of 64", value >= 64);
    SAY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 64, 0));
    fact("one at least", value >= 1);

    MUST(cuMemAlloc(&words, count * 4));
    void *parameters[] = {&words, &count, &first};
    SAY(cuLaunchKernel(fill, 8, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    SAY(cuLaunchKernel(fill, 0, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
    CUlaunchConfig how = {};
    how.gridDimX = 8, how.gridDimY = how.gridDimZ = 1, how.blockDimX = 32, how.blockDimY = how.blockDimZ = 1;
    SAY(cuLaunchKernelEx(&how, add, parameters, nullptr));
    SAY(cuCtxSynchronize());
    fact("filled, and one more", all_are(words, count, 42));

    CUdeviceptr x, y;
    float a = 2;
    std::vector<float> ones(1000, 1), threes(1000);
    MUST(cuMemAlloc(&x, 4000));
    MUST(cuMemAlloc(&y, 4000));
    MUST(cuMemcpyHtoD(x, ones.data(), 4000));
    MUST(cuMemcpyHtoD(y, ones.data(), 4000));
    count = 1000;
    launch(saxpy, 64, {&y, &x, &a, &count});
    MUST(cuMemcpyDtoH(threes.data(), y, 4000));
    fact("2 * 1 + 1", threes == std::vector<float>(1000, 3));

    // A list whose nodes know one another by their addresses on the device.
    CUdeviceptr nodes[3], sum;
    for (CUdeviceptr &node : nodes) MUST(cuMemAlloc(&node, 16));
    MUST(cuMemAlloc(&sum, 8));
    for (int at = 0; at < 3; ++at) {
        uint64_t node[2] = {at == 2 ? 0 : nodes[at + 1], uint64_t(at + 10)};
        MUST(cuMemcpyHtoD(nodes[at], node, 16));
    }
    launch(list, 1, {&nodes[0], &sum});
    number("sum", words_at(sum, 1)[0]);
    SAY(cuModuleUnload(module));
    for (CUdeviceptr address : {words, x, y, sum, nodes[0], nodes[1], nodes[2]}) MUST(cuMemFree(address));
}

void managed_variables() {
    begin("variables of modules and libraries");
    CUmodule module, of_library;
    CUlibrary library;
    CUfunction count_launch, function;
    CUkernel kernel;
    CUdeviceptr own, managed;
    size_t bytes;
    MUST(cuModuleLoadData(&module, ptx.c_str()));
    MUST(cuModuleGetFunction(&count_launch, module, "count_launch"));
    SAY(cuModuleGetGlobal(&managed, &bytes, module, "launches_managed"));
    number("bytes", (long long)bytes);
    MUST(cuModuleGetGlobal(&own, &bytes, module, "launches"));
    launch(count_launch, 32, {});
    launch(count_launch, 32, {});
    SAY(cuCtxSynchronize());
    number("counted on the device", words_at(own, 1)[0]);
    number("and where the host sees it", *pointer<uint32_t>(managed));
    fact("managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed) == 1);
    fact("not managed", attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, own) == 0);

    SAY(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    SAY(cuLibraryGetKernel(&kernel, library, "count_launch"));
    SAY(cuLibraryGetKernel(&kernel, library, "no_such_kernel"));
    MUST(cuLibraryGetKernel(&kernel, library, "count_launch"));
    SAY(cuKernelGetFunction(&function, kernel));
    SAY(cuLibraryGetModule(&of_library, library));
    SAY(cuLibraryGetGlobal(&own, &bytes, library, "launches"));
    SAY(cuLibraryGetManaged(&managed, &bytes, library, "launches_managed"));
    number("bytes", (long long)bytes);
    launch(function, 32, {});
    launch(reinterpret_cast<CUfunction>(kernel), 32, {});
    launch(reinterpret_cast<CUfunction>(kernel), 32, {});
    SAY(cuCtxSynchronize());
    number("counted for the library", words_at(own, 1)[0]);
    number("and where the host sees it", *pointer<uint32_t>(managed));
    SAY(cuLibraryUnload(library));
    SAY(cuModuleUnload(module));
}
