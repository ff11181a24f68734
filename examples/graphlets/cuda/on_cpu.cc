// The kernel for the driver of kernels/cuda/on_cpu.
#include "../../../kernels/cuda/on_cpu/language.h"

#include "graphlets.cu"

#include "../../../kernels/cuda/on_cpu/kernels.h"

static on_cpu::Added added({{"count_graphlets", count_graphlets}});
