// The devices: how many there are, and how much memory each has, is said by CKPT_DOUBLE_DEVICES and CKPT_DOUBLE_MEMORY.
#pragma once

#include <cuda.h>

#include <stddef.h>

#include <vector>

namespace test_double {

struct Device {
    size_t total, used;

    // Other programs may have taken more than this one leaves.
    size_t left() const { return used < total ? total - used : 0; }
};

std::vector<Device> &devices();

bool is_device(int ordinal);

} // namespace test_double
