// Arrays, and copies of rows and slices.
#include "groups.h"

void arrays() {
    begin("arrays");
    CUarray flat, block, level;
    CUmipmappedArray levels;
    CUDA_ARRAY_DESCRIPTOR shape = {50, 20, CU_AD_FORMAT_UNSIGNED_INT32, 1}, said = {};
    SAY(cuArrayCreate(&flat, &shape));
    SAY(cuArrayGetDescriptor(&said, flat));
    fact("as made", said.Width == 50 && said.Height == 20 && said.Format == shape.Format && said.NumChannels == 1);
    std::vector<uint32_t> there(1000), back(1000);
    for (size_t at = 0; at < 1000; ++at) there[at] = uint32_t(at);
    CUDA_MEMCPY2D in = {};
    in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = there.data(), in.srcPitch = 200;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY, in.dstArray = flat, in.WidthInBytes = 200, in.Height = 20;
    SAY(cuMemcpy2D(&in));
    CUdeviceptr rows;
    size_t pitch;
    MUST(cuMemAllocPitch(&rows, &pitch, 200, 20, 4));
    CUDA_MEMCPY2D out = {};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = flat;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE, out.dstDevice = rows, out.dstPitch = pitch, out.WidthInBytes = 200, out.Height = 20;
    SAY(cuMemcpy2DAsync(&out, nullptr));
    SAY(cuStreamSynchronize(nullptr));
    number("a word of the last row", words_at(rows + 19 * pitch, 50)[7]);
    CUDA_MEMCPY2D part = {};
    part.srcMemoryType = CU_MEMORYTYPE_ARRAY, part.srcArray = flat, part.srcXInBytes = 40, part.srcY = 3;
    part.dstMemoryType = CU_MEMORYTYPE_HOST, part.dstHost = back.data(), part.dstPitch = 200;
    part.WidthInBytes = 8, part.Height = 2;
    SAY(cuMemcpy2D(&part));
    fact("a part", back[0] == 160 && back[1] == 161 && back[50] == 210 && back[51] == 211 && back[2] == 0);
    part.srcY = 19;
    SAY(cuMemcpy2D(&part));

    CUDA_ARRAY3D_DESCRIPTOR solid = {10, 10, 10, CU_AD_FORMAT_FLOAT, 1, 0};
    SAY(cuArray3DCreate(&block, &solid));
    CUDA_MEMCPY3D cube = {};
    cube.srcMemoryType = CU_MEMORYTYPE_HOST, cube.srcHost = there.data(), cube.srcPitch = 40, cube.srcHeight = 10;
    cube.dstMemoryType = CU_MEMORYTYPE_ARRAY, cube.dstArray = block, cube.WidthInBytes = 40, cube.Height = cube.Depth = 10;
    SAY(cuMemcpy3D(&cube));
    CUDA_MEMCPY3D core = {};
    core.srcMemoryType = CU_MEMORYTYPE_ARRAY, core.srcArray = block, core.srcXInBytes = 8, core.srcY = 3, core.srcZ = 4;
    core.dstMemoryType = CU_MEMORYTYPE_HOST, core.dstHost = back.data(), core.dstPitch = 40, core.dstHeight = 10;
    core.WidthInBytes = 4, core.Height = 1, core.Depth = 2;
    SAY(cuMemcpy3D(&core));
    fact("two of its words", back[0] == 432 && back[100] == 532);
    SAY(cuMipmappedArrayCreate(&levels, &solid, 2));
    SAY(cuMipmappedArrayGetLevel(&level, levels, 1));
    MUST(cuArray3DGetDescriptor(&solid, level));
    number("half as wide", (long long)solid.Width);
    SAY(cuMipmappedArrayDestroy(levels));
    SAY(cuArrayDestroy(flat));
    SAY(cuArrayDestroy(block));
    MUST(cuMemFree(rows));
}
