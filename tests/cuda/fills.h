// Fills, as the entry points and the nodes of graphs make them.
#pragma once

#include <cuda.h>

#include "queues.h"

namespace test_double {

// Rows of elements of one, two or four bytes, each the low bytes of the value.
struct Fill {
    CUdeviceptr to;
    unsigned value, element_bytes;
    size_t width, height, pitch; // elements, rows, bytes from row to row
};

CUresult check(const Fill &fill);
Work filling(const Fill &fill);

} // namespace test_double
