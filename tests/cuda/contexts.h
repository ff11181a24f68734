// Contexts, and which one is a thread's current. What belongs to a context ends with it.
#pragma once

#include <cuda.h>

#include <set>

struct CUctx_st {
    int device;
    unsigned flags;
    bool is_primary;
    unsigned long long id;
    CUstream legacy = nullptr;   // made when first used
    std::set<CUcontext> peers{}; // whose memory it may use
};

namespace test_double {

// The current context of this thread; null if there is none.
CUcontext current_context();
// What a call that needs one returns.
CUresult check_current_context();

// For the time of its life this context is current.
class Within {
  public:
    explicit Within(CUcontext context);
    ~Within();
};

} // namespace test_double
