// What must hold for a victim to end with the status 0: the first that does not is said, and ends it.
#pragma once

#include "trace.h"

#include <stdio.h>
#include <unistd.h>

#define EXPECT(holds)                                                                                                           \
    do {                                                                                                                        \
        if (!(holds)) fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), _exit(1);                             \
    } while (0)
#define EXPECT_RESULT(wanted, call)                                                                                             \
    do {                                                                                                                        \
        CUresult result = call;                                                                                                 \
        if (result != wanted) fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_of(result)), _exit(1);         \
    } while (0)
#define EXPECT_OK(call) EXPECT_RESULT(CUDA_SUCCESS, call)
