// The kernels that name chunks. The chain of a chunk is sequential, so each lane runs the chain of a chunk of its own;
// they differ in how the bytes come to the lanes.
//
// A `Work` has a whole number of groups of 32 chunks, and a chunk is a whole number of 128 bytes (16 for hash_direct).
#pragma once

#include "pattern.cuh"
#include "t7_table.cuh"

constexpr uint32_t LANES = 32;
constexpr uint32_t WARPS = 4; // in a block
constexpr uint32_t THREADS = WARPS * LANES;

struct Work {
    const Word *words;
    uint32_t chunks;
    uint32_t words_per_chunk;
};

// Each lane reads its own chunk from memory, AHEAD words of 16 bytes in one go as far as the compiler finds registers
// for them. The lanes of a warp are a chunk apart, so each of their loads touches 32 lines.
template <uint32_t AHEAD, typename Sink>
__global__ void __launch_bounds__(THREADS) hash_direct(Work work, Sink sink) {
    uint32_t chunk = blockIdx.x * blockDim.x + threadIdx.x;
    if (chunk >= work.chunks) return;
    const Word *words = work.words + size_t(chunk) * work.words_per_chunk;
    Chain chain;
#pragma unroll 1
    for (uint32_t at = 0; at < work.words_per_chunk; at += AHEAD) {
        Word ahead[AHEAD];
#pragma unroll
        for (uint32_t word = 0; word < AHEAD; ++word) ahead[word] = words[at + word];
#pragma unroll
        for (uint32_t word = 0; word < AHEAD; ++word) chain.add(ahead[word].x, ahead[word].y);
    }
    sink(chunk, chain.finished(work.words_per_chunk * sizeof(Word)));
}

// A tile is a piece of COLUMNS words of each chunk of a group, one row a chunk. In shared memory a row's words are
// permuted by the row's number: 8 neighbouring lanes, which shared memory serves at once, then meet 8 different groups
// of banks both when they write a row and when each reads the same column of its own row. It is also the order in which
// the copy engine writes with CU_TENSOR_MAP_SWIZZLE_128B.
template <uint32_t COLUMNS> __device__ inline uint32_t place_in_tile(uint32_t row, uint32_t column) {
    return row * COLUMNS + (column ^ (row & 7));
}

template <uint32_t COLUMNS> __device__ inline void add_tile(Chain &chain, const Word *tile, uint32_t lane) {
#pragma unroll
    for (uint32_t column = 0; column < COLUMNS; ++column) {
        Word word = tile[place_in_tile<COLUMNS>(lane, column)];
        chain.add(word.x, word.y);
    }
}

// The order in which a warp takes tiles: a group of chunks from its left end to its right, then the next group that is
// the warp's. The warps take the groups in turn.
template <uint32_t COLUMNS> struct Walk {
    uint32_t group, column = 0;

    __device__ explicit Walk(uint32_t warp) : group(blockIdx.x * WARPS + warp) {}
    __device__ bool ended(const Work &work) const { return group >= work.chunks / LANES; }
    // Whether this was the last tile of its group.
    __device__ bool advance(const Work &work) {
        column += COLUMNS;
        if (column < work.words_per_chunk) return false;
        column = 0;
        group += gridDim.x * WARPS;
        return true;
    }
};

// Every lane copies words of all rows: the lanes of one instruction read whole rows, each in one piece.
template <uint32_t COLUMNS, int PREFETCH>
__device__ inline void start_tile_by_lanes(Word *tile, const Work &work, const Walk<COLUMNS> &walk, uint32_t lane) {
    constexpr uint32_t ROWS_AT_ONCE = LANES / COLUMNS;
    uint32_t first_row = lane / COLUMNS, column = lane % COLUMNS;
    const Word *from =
        work.words + (size_t(walk.group) * LANES + first_row) * work.words_per_chunk + walk.column + column;
#pragma unroll
    for (uint32_t row = 0; row < LANES; row += ROWS_AT_ONCE) {
        start_copy<PREFETCH>(tile + place_in_tile<COLUMNS>(first_row + row, column), from);
        from += size_t(ROWS_AT_ONCE) * work.words_per_chunk;
    }
}

constexpr uint32_t tiles_bytes(uint32_t columns, uint32_t stages) {
    return WARPS * stages * LANES * columns * uint32_t(sizeof(Word));
}

// The lanes of a warp load tiles into shared memory together, STAGES - 1 tiles ahead. Warps share nothing.
template <uint32_t COLUMNS, uint32_t STAGES, int PREFETCH, typename Sink>
__global__ void __launch_bounds__(THREADS) hash_tiles(Work work, Sink sink) {
    constexpr uint32_t TILE = LANES * COLUMNS;
    extern __shared__ Word shared_words[];
    uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    Word *tiles = shared_words + warp * STAGES * TILE;
    Walk<COLUMNS> loading(warp), hashing(warp);
    auto load_next = [&](uint32_t stage) {
        if (!loading.ended(work)) {
            start_tile_by_lanes<COLUMNS, PREFETCH>(tiles + stage * TILE, work, loading, lane);
            loading.advance(work);
        }
        close_group(); // even an empty one, so that the number of groups tells which tile has come
    };
    for (uint32_t stage = 0; stage < STAGES - 1; ++stage) load_next(stage);

    Chain chain;
    uint32_t stage = 0, free_stage = STAGES - 1;
    while (!hashing.ended(work)) {
        wait_for_groups<int(STAGES) - 2>();
        __syncwarp(); // the other lanes' copies have come too, and nobody reads the tile before this one any more
        load_next(free_stage);
        add_tile<COLUMNS>(chain, tiles + stage * TILE, lane);
        free_stage = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        uint32_t chunk = hashing.group * LANES + lane;
        if (hashing.advance(work)) {
            sink(chunk, chain.finished(work.words_per_chunk * sizeof(Word)));
            chain = Chain();
        }
    }
}

// The permutation of the copy engine repeats after 1024 bytes of shared memory, and is one of addresses.
constexpr uint32_t ENGINE_COLUMNS = 8;
constexpr uint32_t ENGINE_ALIGNMENT = 1024;

constexpr uint32_t engine_bytes(uint32_t stages) {
    return tiles_bytes(ENGINE_COLUMNS, stages) + ENGINE_ALIGNMENT + WARPS * stages * uint32_t(sizeof(Arrival));
}

// The copy engine loads the tiles: one instruction of one lane each, and no register or address of any other.
template <uint32_t STAGES, typename Sink>
__global__ void __launch_bounds__(THREADS)
    hash_by_engine(const __grid_constant__ CUtensorMap map, Work work, Sink sink) {
    constexpr uint32_t TILE = LANES * ENGINE_COLUMNS;
    extern __shared__ Word shared_words[];
    uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    uint32_t unaligned = shared_address(shared_words) % ENGINE_ALIGNMENT;
    Word *all_tiles = shared_words + (ENGINE_ALIGNMENT - unaligned) % ENGINE_ALIGNMENT / sizeof(Word);
    Word *tiles = all_tiles + warp * STAGES * TILE;
    Arrival *arrivals = reinterpret_cast<Arrival *>(all_tiles + WARPS * STAGES * TILE) + warp * STAGES;
    Walk<ENGINE_COLUMNS> loading(warp), hashing(warp);
    auto load_next = [&](uint32_t stage) {
        if (loading.ended(work)) return;
        // The map counts columns in halves of a Word, the largest element that it knows.
        if (lane == 0)
            start_tile(tiles + stage * TILE, map, loading.column * 2, loading.group * LANES, TILE * sizeof(Word),
                       arrivals + stage);
        loading.advance(work);
    };
    if (lane == 0) prepare_arrivals(arrivals, STAGES);
    __syncwarp();
    for (uint32_t stage = 0; stage < STAGES - 1; ++stage) load_next(stage);

    Chain chain;
    uint32_t stage = 0, free_stage = STAGES - 1, phase = 0;
    while (!hashing.ended(work)) {
        wait_for_tile(arrivals + stage, phase);
        __syncwarp(); // nobody reads the tile before this one any more
        load_next(free_stage);
        add_tile<ENGINE_COLUMNS>(chain, tiles + stage * TILE, lane);
        free_stage = stage;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
        uint32_t chunk = hashing.group * LANES + lane;
        if (hashing.advance(work)) {
            sink(chunk, chain.finished(work.words_per_chunk * sizeof(Word)));
            chain = Chain();
        }
    }
}

static __global__ void __launch_bounds__(256) read_only(const Word *words, size_t count, uint64_t *never) {
    constexpr uint32_t AHEAD = 8;
    uint64_t mixed = 0;
    size_t step = size_t(gridDim.x) * blockDim.x * AHEAD;
    for (size_t base = size_t(blockIdx.x) * blockDim.x * AHEAD + threadIdx.x; base < count; base += step) {
        Word ahead[AHEAD];
#pragma unroll
        for (uint32_t word = 0; word < AHEAD; ++word) ahead[word] = words[base + word * blockDim.x];
#pragma unroll
        for (uint32_t word = 0; word < AHEAD; ++word) mixed ^= ahead[word].x ^ ahead[word].y;
    }
    if (mixed == 0x5ca1ab1e0ddba11ull) *never = mixed; // what is not used is not read
}

template <typename Sink>
static __global__ void __launch_bounds__(256) sink_all(const Digest *digests, uint32_t count, Sink sink) {
    uint32_t chunk = blockIdx.x * blockDim.x + threadIdx.x;
    if (chunk < count) sink(chunk, digests[chunk]);
}

// ---- data with known copies, and checks ----

enum Copies { NO_COPIES, COPY_OF_NEIGHBOUR, COPY_OF_FIRST_HALF, COPY_OF_FIRST };

// The first chunk with the content of `chunk`: the one that the table must name.
__host__ __device__ inline uint32_t original_of(Copies copies, uint32_t chunk, uint32_t chunks) {
    switch (copies) {
    case COPY_OF_NEIGHBOUR: return chunk & ~1u;
    case COPY_OF_FIRST_HALF: return chunk % (chunks / 2);
    case COPY_OF_FIRST: return 0;
    default: return chunk;
    }
}

// As `fill` does, but for the copies.
static __global__ void fill_chunks(uint64_t *halves, uint32_t chunks, uint32_t halves_per_chunk, Copies copies,
                                   uint64_t seed) {
    size_t count = size_t(chunks) * halves_per_chunk;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x) {
        uint32_t original = original_of(copies, uint32_t(at / halves_per_chunk), chunks);
        halves[at] = word_at(size_t(original) * halves_per_chunk + at % halves_per_chunk, seed);
    }
}

static __global__ void count_different(const Digest *digests, const Digest *expected, uint32_t count,
                                       unsigned long long *different) {
    uint32_t chunk = blockIdx.x * blockDim.x + threadIdx.x;
    if (chunk < count && !(digests[chunk] == expected[chunk])) atomicAdd(different, 1ull);
}

static __global__ void count_occupied(Table table, unsigned long long *occupied) {
    unsigned long long mine = 0;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at <= table.mask;
         at += size_t(gridDim.x) * blockDim.x)
        mine += !(table.slots[at].key == Digest{0, 0});
    if (mine != 0) atomicAdd(occupied, mine);
}

// Chunks whose digest is not in the table, or there under another owner than the first chunk with that content.
static __global__ void count_misnamed(const Digest *digests, uint32_t chunks, Copies copies, uint32_t checkpoint,
                                      Table table, unsigned long long *misnamed) {
    uint32_t chunk = blockIdx.x * blockDim.x + threadIdx.x;
    if (chunk >= chunks) return;
    const Slot *slot = find(table, key_of(digests[chunk]));
    uint64_t owner = owner_of(checkpoint, original_of(copies, chunk, chunks));
    if (slot == nullptr || slot->owner_complement != ~owner) atomicAdd(misnamed, 1ull);
}
