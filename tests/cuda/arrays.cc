// Entry points for arrays and mipmapped arrays.
#include "arrays.h"

#include <sys/mman.h>

#include "address_space.h"
#include "call.h"
#include "contexts.h"
#include "live.h"

using namespace test_double;

namespace {

unsigned element_bytes(CUarray_format format) {
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    default: return 0; // formats of pictures are not in the double
    }
}

CUresult check(const CUDA_ARRAY3D_DESCRIPTOR &shape) {
    bool has_channels = shape.NumChannels == 1 || shape.NumChannels == 2 || shape.NumChannels == 4;
    return element_bytes(shape.Format) != 0 && has_channels && shape.Width != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Null where the device has not as much left.
CUarray new_array(const CUDA_ARRAY3D_DESCRIPTOR &shape) {
    CUarray array = Live<CUarray_st>::create(CUarray_st{current_context(), shape, nullptr, 0});
    size_t bytes = round_up(array->row_bytes() * array->rows() * array->slices(), GRANULARITY);
    array->physical = Physical::create(bytes, current_context()->device);
    if (array->physical == nullptr || (array->address = reserve_addresses(bytes, GRANULARITY)) == 0) {
        Live<CUarray_st>::destroy(array);
        return nullptr;
    }
    array->physical->fill(0xa5); // nothing may rely on zeros
    array->physical->map(array->address, 0, bytes, PROT_READ | PROT_WRITE);
    return array;
}

CUresult create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR &shape) {
    CUresult result = check(shape);
    if (array == nullptr || result != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    *array = new_array(shape);
    return *array == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR level_of(CUDA_ARRAY3D_DESCRIPTOR shape, unsigned level) {
    auto halved = [&](size_t length) { return length == 0 ? 0 : (length >> level) == 0 ? 1 : length >> level; };
    shape.Width = halved(shape.Width);
    shape.Height = halved(shape.Height);
    shape.Depth = halved(shape.Depth);
    return shape;
}

void destroy_levels(CUmipmappedArray array) {
    for (CUarray level : array->levels) Live<CUarray_st>::destroy(level);
    array->levels.clear();
}

} // namespace

namespace test_double {

void destroy_arrays_of(CUcontext context) {
    for (CUmipmappedArray one : Live<CUmipmappedArray_st>::those([&](auto &array) { return array.context == context; }))
        Live<CUmipmappedArray_st>::destroy(one);
    for (CUarray one : Live<CUarray_st>::those([&](auto &array) { return array.context == context; }))
        Live<CUarray_st>::destroy(one);
}

} // namespace test_double

CUarray_st::~CUarray_st() {
    if (address == 0) return;
    physical->unmap(address);
    free_addresses(address);
}

size_t CUarray_st::row_bytes() const { return shape.Width * shape.NumChannels * element_bytes(shape.Format); }

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape) {
    ENTER(A_CONTEXT);
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return create(array, {shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0});
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    ENTER(A_CONTEXT);
    return shape == nullptr ? CUDA_ERROR_INVALID_VALUE : create(array, *shape);
}

CUresult cuArrayDestroy(CUarray array) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (!Live<CUarray_st>::has(array) || array->level_of != nullptr) return CUDA_ERROR_INVALID_HANDLE;
    Live<CUarray_st>::destroy(array);
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray array) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUarray_st>::has(array)) return CUDA_ERROR_INVALID_HANDLE;
    *shape = {array->shape.Width, array->shape.Height, array->shape.Format, array->shape.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!Live<CUarray_st>::has(array)) return CUDA_ERROR_INVALID_HANDLE;
    *shape = array->shape;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    ENTER(A_CONTEXT);
    if (array == nullptr || shape == nullptr || levels == 0 || check(*shape) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
    Locked locked;
    CUmipmappedArray all = Live<CUmipmappedArray_st>::create(CUmipmappedArray_st{current_context(), {}});
    for (unsigned level = 0; level < levels; ++level) {
        CUarray one = new_array(level_of(*shape, level));
        if (one == nullptr) {
            destroy_levels(all);
            Live<CUmipmappedArray_st>::destroy(all);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        one->level_of = all;
        all->levels.push_back(one);
    }
    *array = all;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned number) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (!Live<CUmipmappedArray_st>::has(array)) return CUDA_ERROR_INVALID_HANDLE;
    if (level == nullptr || number >= array->levels.size()) return CUDA_ERROR_INVALID_VALUE;
    *level = array->levels[number];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    ENTER(A_CONTEXT);
    Locked locked;
    if (!Live<CUmipmappedArray_st>::has(array)) return CUDA_ERROR_INVALID_HANDLE;
    destroy_levels(array);
    Live<CUmipmappedArray_st>::destroy(array);
    return CUDA_SUCCESS;
}
