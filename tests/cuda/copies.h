// Copies of bytes in a row, as the entry points and the nodes of graphs make them.
#pragma once

#include <cuda.h>

#include "queues.h"

namespace test_double {

// Whether a program may copy from or to there: a device's memory must be its own, while the host's is not known in full.
bool is_readable(CUdeviceptr address, size_t bytes, bool must_be_device);
bool is_writable(CUdeviceptr address, size_t bytes, bool must_be_device);
// Whether it is memory of a device, or managed.
bool is_on_device(CUdeviceptr address);
// The copy, and how it counts as traffic.
Work copying(CUdeviceptr to, CUdeviceptr from, size_t bytes);

} // namespace test_double
