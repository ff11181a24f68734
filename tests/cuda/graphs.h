// Graphs: nodes that are work, and the capture that makes them of what a program puts into a stream. An executable graph does
// its nodes one after the other, in the order in which they were added, which is one that their dependencies allow.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "queues.h"

struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    test_double::Work run;
    std::vector<CUgraphNode> dependencies;
};

struct CUgraph_st {
    std::vector<CUgraphNode> nodes{};
    ~CUgraph_st();
};

struct CUgraphExec_st {
    std::vector<test_double::Work> work;
};

namespace test_double {

// Memory that a graph uses each time it runs. It is there as long as the graph, or something made of it.
class GraphMemory {
  public:
    // Null where there is not as much left.
    static std::shared_ptr<GraphMemory> create(CUmemoryPool pool, int device, size_t bytes);
    ~GraphMemory();
    const CUdeviceptr address;

  private:
    explicit GraphMemory(CUdeviceptr address) : address(address) {}
};

// What a stream captures, and those that have joined it.
struct Capture {
    CUgraph graph;
    CUstream origin;
    bool forbids_default; // work for the legacy default stream meanwhile
    CUgraphNode last = nullptr;

    CUresult add(CUgraphNodeType type, Work work);
    CUresult allocate(CUmemoryPool pool, size_t bytes, CUdeviceptr *address);
};

} // namespace test_double
