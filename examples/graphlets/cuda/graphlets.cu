// Counting on a device: what src/counting/growth.rs and src/counting/threads.rs do, with equal results.
//
// A thread takes a root and one of its neighbours, and finds all sets that begin with the two. It remembers a set by its
// members and the place behind the last one, so its stack has a fixed size, whatever the degrees are. The loop makes one
// step at any depth of the stack: threads of a warp that are at different depths go through the same instructions.

#include <stdint.h>

namespace {

constexpr uint32_t vertices_max = 5;
constexpr uint32_t orbits = 73;
constexpr uint32_t table_row_bytes = 8;
// Fewer neighbours than this are looked through one by one.
constexpr uint32_t few_neighbours = 16;

// The neighbours of vertex v are those from offsets[v] to offsets[v + 1], in ascending order.
struct Graph {
    const uint32_t *offsets;
    const uint32_t *neighbours;
};

// A set of vertices, and where the next member is looked for.
struct Sets {
    uint32_t members[vertices_max];
    // For the first 1, 2, ... members: the edges among them in bits, ...
    uint32_t edges[vertices_max];
    // ... the member whose neighbours are looked through, ...
    uint32_t member[vertices_max];
    // ... and the next one of these, by its place in Graph::neighbours.
    uint32_t place[vertices_max];
};

// The first of `count` ascending values that is not below `wanted`, or `count`.
__device__ uint32_t lower_bound(const uint32_t *values, uint32_t count, uint32_t wanted) {
    uint32_t first = 0;
    while (count > 0) {
        const uint32_t half = count / 2;
        if (values[first + half] < wanted) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

__device__ bool is_edge(const Graph &graph, uint32_t a, uint32_t b) {
    uint32_t first = graph.offsets[a], count = graph.offsets[a + 1] - first;
    const uint32_t first_of_b = graph.offsets[b], count_of_b = graph.offsets[b + 1] - first_of_b;
    uint32_t wanted = b;
    if (count_of_b < count) {
        first = first_of_b;
        count = count_of_b;
        wanted = a;
    }
    if (count >= few_neighbours) {
        const uint32_t at = lower_bound(graph.neighbours + first, count, wanted);
        return at < count && graph.neighbours[first + at] == wanted;
    }
    for (uint32_t at = first; at < first + count; at++) {
        if (graph.neighbours[at] == wanted) return true;
    }
    return false;
}

// The edges between a neighbour of a member and all members, a bit for each member; 0 if it is a neighbour of an earlier
// member too.
__device__ uint32_t edges_of_new(const Graph &graph, const Sets &sets, uint32_t size, uint32_t candidate) {
    const uint32_t member = sets.member[size - 1];
    for (uint32_t earlier = 0; earlier < member; earlier++) {
        if (is_edge(graph, sets.members[earlier], candidate)) return 0;
    }
    uint32_t edges = 1u << member;
    for (uint32_t later = member + 1; later < size; later++) {
        if (is_edge(graph, sets.members[later], candidate)) edges |= 1u << later;
    }
    return edges;
}

// Adds one to the counters of all members.
__device__ void count(const uint8_t *orbit_table, uint32_t *counters, const Sets &sets, uint32_t size, uint32_t edges) {
    // Rows for two vertices come first, then those for three, four and five.
    const uint32_t first_row = size == 5 ? 74 : size == 4 ? 10 : size == 3 ? 2 : 0;
    const uint8_t *row = orbit_table + (first_row + edges) * table_row_bytes;
    for (uint32_t member = 0; member < size; member++) {
        atomicAdd(&counters[uint64_t{sets.members[member]} * orbits + row[member]], 1u);
    }
}

} // namespace

// Counts all sets whose smallest vertex is one of `roots` vertices from `first_root` on. Needs a thread for each neighbour of
// these, that is offsets[first_root + roots] - offsets[first_root] threads in one dimension. `counters` has 73 of them for
// each vertex; `orbit_table` is OrbitTable::bytes.
extern "C" __global__ void __launch_bounds__(128) count_graphlets(const uint32_t *offsets, const uint32_t *neighbours, const uint8_t *orbit_table,
                                           uint32_t *counters, uint32_t first_root, uint32_t roots) {
    const Graph graph{offsets, neighbours};
    const uint64_t thread = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const uint32_t first_place = offsets[first_root];
    if (thread >= offsets[first_root + roots] - first_place) return;
    const uint32_t begin = first_place + static_cast<uint32_t>(thread);
    // The last root whose neighbours begin there or before.
    const uint32_t root = first_root + lower_bound(offsets + first_root + 1, roots, begin + 1);
    if (neighbours[begin] <= root) return;

    Sets sets;
    sets.members[0] = root;
    sets.members[1] = neighbours[begin];
    sets.edges[1] = 1;
    sets.member[1] = 0;
    sets.place[1] = begin + 1;
    count(orbit_table, counters, sets, 2, 1);
    uint32_t size = 2;
    while (size > 1) {
        const uint32_t top = size - 1;
        if (sets.place[top] == offsets[sets.members[sets.member[top]] + 1]) {
            sets.member[top]++;
            if (sets.member[top] == size) {
                size--;
            } else {
                sets.place[top] = offsets[sets.members[sets.member[top]]];
            }
            continue;
        }
        const uint32_t candidate = neighbours[sets.place[top]++];
        const uint32_t new_edges = candidate > root ? edges_of_new(graph, sets, size, candidate) : 0;
        if (new_edges == 0) continue;
        const uint32_t edges = sets.edges[top] | new_edges << size * (size - 1) / 2;
        sets.members[size] = candidate;
        count(orbit_table, counters, sets, size + 1, edges);
        if (size + 1 < vertices_max) {
            sets.edges[size] = edges;
            sets.member[size] = sets.member[top];
            sets.place[size] = sets.place[top];
            size++;
        }
    }
}
