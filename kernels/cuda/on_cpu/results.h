// What the driver's entry points return and take, without CUDA's own header, which only a machine with the toolkit has.
#pragma once

#include <stdint.h>

namespace on_cpu {

enum Result : int { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

template <typename T> T *pointer(uint64_t address) { return reinterpret_cast<T *>(address); }

} // namespace on_cpu
