// Victims that lead one of several cases, by its name.
#pragma once

#include "expect.h"

#include <cuda.h>

// Makes the primary context of the first device current.
inline void begin_with_device(CUcontext &context) {
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT_OK(cuCtxSetCurrent(context));
}

// Ends with the status 0, whatever still waits.
[[noreturn]] inline void end_well() {
    fflush(nullptr);
    _exit(0);
}
