// The kernels of the test programs for the double.
#include "language.h"

#include "kernels.cu"

#include "kernels.h"
#include "modules.h"

#define NAMED(name) {#name, name}

static on_cpu::Added added({NAMED(fill_words), NAMED(add_one), NAMED(fill_mixed), NAMED(count_others), NAMED(saxpy), NAMED(sum_list), NAMED(count_launch)});

static test_double::Bound variables[] = {
    {"launches", reinterpret_cast<void **>(&launches)},
    {"launches_managed", reinterpret_cast<void **>(&launches_managed)},
};
