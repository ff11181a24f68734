// Launches of kernels, as the entry points and the nodes of graphs make them.
#pragma once

#include <cuda.h>

#include "queues.h"

namespace test_double {

struct Launch {
    CUfunction function;
    unsigned blocks[3], threads[3];
    void **parameters;
};

// What a stream is to do; the parameters are copied at once. An error if the CPU cannot do it.
CUresult prepare(const Launch &launch, Work &work);

} // namespace test_double
