// Streams as the program has them: a queue of kernels/cuda/on_cpu/streams.h, and how it is in order with others. What is put
// into the legacy default stream waits for all that was put into the context's blocking streams before, and what is put into
// these waits for it. While a stream captures, work becomes a node of a graph instead.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <vector>

#include "streams.h"

namespace test_double {
struct Capture;
}

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority;
    unsigned long long id;
    std::shared_ptr<on_cpu::Stream> queue = std::make_shared<on_cpu::Stream>();
    std::shared_ptr<test_double::Capture> capture = nullptr; // while it captures
};

struct CUevent_st {
    CUcontext context;
    unsigned flags;
    on_cpu::Event times{};
    std::shared_ptr<test_double::Capture> capture = nullptr; // that it was last recorded in
    bool is_exported = false;
};

namespace test_double {

constexpr int GREATEST_PRIORITY = -5;

using Work = std::function<void()>;

// The stream that a program means, which may be one of the default streams; null if there is no such.
CUstream stream_meant(CUstream stream);
// For the time of its life, no stream means this thread's default stream.
class PerThreadDefault {
  public:
    PerThreadDefault();
    ~PerThreadDefault();
};

// Puts work into a stream, or into the graph that it captures.
CUresult submit(CUstream stream, CUgraphNodeType type, Work work);
// The same, and waits for it. Nothing that waits can be captured.
CUresult submit_and_wait(CUstream stream, CUgraphNodeType type, Work work);
// Puts work into a stream that does not capture, and into none of its graphs.
void enqueue(CUstream stream, Work work);

std::vector<CUstream> streams_of(CUcontext context);
// The same, but what may be awaited while other threads destroy streams; those of all contexts for none.
std::vector<std::shared_ptr<on_cpu::Stream>> queues_of(CUcontext context);
void destroy_streams_of(CUcontext context);
bool is_any_capturing(CUcontext context);
// What the driver does when a program has waited: pools give back what they do not keep.
void after_synchronising();

} // namespace test_double
