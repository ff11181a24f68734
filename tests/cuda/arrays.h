// Arrays: memory whose layout is the device's own. Here they are rows behind one another at no address of the program's.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "physical.h"

struct CUarray_st {
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    std::shared_ptr<test_double::Physical> physical;
    uint64_t address;
    CUmipmappedArray level_of = nullptr;

    ~CUarray_st();
    size_t row_bytes() const;
    size_t rows() const { return shape.Height == 0 ? 1 : shape.Height; }
    size_t slices() const { return shape.Depth == 0 ? 1 : shape.Depth; }
};

struct CUmipmappedArray_st {
    CUcontext context;
    std::vector<CUarray> levels;
};

namespace test_double {

void destroy_arrays_of(CUcontext context);

} // namespace test_double
