// The digests of all chunks, and which chunks are not what they were.
//
// The chain of a chunk is sequential, so each lane runs the chain of a chunk of its own; bytes come to the lanes through
// shared memory, by rows of neighbouring bytes, two pieces ahead. A warp takes groups of 32 chunks and shares nothing with
// others, so there is no barrier for a whole block.
#pragma once

#include "checkpoint.cuh"

constexpr uint32_t HASH_WARPS = 4; // in a block, at most
constexpr uint32_t HASH_THREADS = HASH_WARPS * LANES;
constexpr uint32_t STAGES = 3; // pieces of a warp: one is hashed, the others are on their way

// How the chunks of a region can be read: the widest words at which all of them begin and of which they consist.
enum Grain : uint32_t { BY_BYTES, BY_WORDS, BY_32, BY_64, BY_128 };

__device__ inline Grain grain_of(const Region &region, uint32_t chunk_bytes) {
    uint64_t begin = reinterpret_cast<uint64_t>(region.bytes);
    if (begin % 4 != 0) return BY_BYTES;
    if (begin % 16 != 0 || chunk_bytes % 32 != 0) return BY_WORDS;
    return chunk_bytes % 128 == 0 ? BY_128 : chunk_bytes % 64 == 0 ? BY_64 : BY_32;
}

// The groups of a warp, in order: those that it has in all regions of one grain.
struct Walk {
    const Checkpoint &checkpoint;
    Grain grain;
    uint32_t group; // among those of all regions
    uint32_t region;

    __device__ Walk(const Checkpoint &checkpoint, Grain grain)
        : checkpoint(checkpoint), grain(grain), group((blockIdx.x * blockDim.x + threadIdx.x) / LANES), region(0) {
        if (!ended()) region = region_with(checkpoint, group / TILE_GROUPS);
        skip();
    }
    __device__ bool ended() const { return group >= checkpoint.tile_count * TILE_GROUPS; }
    __device__ void advance() {
        group += step();
        skip();
    }
    __device__ const Region &here() const { return checkpoint.regions[region]; }
    // Number of the first chunk.
    __device__ uint32_t chunk() const { return (group - here().first_tile * TILE_GROUPS) * LANES; }
    __device__ const uint8_t *bytes() const { return here().bytes + uint64_t(chunk()) * checkpoint.chunk_bytes; }
    // How many chunks there are, and are whole.
    __device__ uint32_t chunks() const { return here().chunks - chunk() < LANES ? here().chunks - chunk() : LANES; }
    __device__ uint32_t whole_chunks() const {
        uint64_t whole = here().length / checkpoint.chunk_bytes - chunk();
        return uint32_t(whole < LANES ? whole : LANES);
    }

  private:
    __device__ static uint32_t step() { return gridDim.x * blockDim.x / LANES; }
    __device__ bool is_nothing() const {
        return chunk() >= here().chunks || grain_of(here(), checkpoint.chunk_bytes) != grain;
    }
    __device__ void skip() {
        for (; !ended(); group += step()) {
            while (region + 1 < checkpoint.region_count &&
                   checkpoint.regions[region + 1].first_tile * TILE_GROUPS <= group)
                ++region;
            if (!is_nothing()) return;
        }
    }
};

// Pieces of `COLUMNS` words of 16 bytes. A row's words are permuted by the row's number: 8 neighbouring lanes, which shared
// memory serves at once, then meet 8 different groups of banks both when they write a row and when each reads the same
// column of its own row.
template <uint32_t COLUMNS> struct Pieces16 {
    static constexpr uint32_t WORDS = LANES * COLUMNS;
    using Element = Word;
    uint32_t columns; // of a chunk

    __device__ explicit Pieces16(uint32_t chunk_bytes) : columns(chunk_bytes / 16) {}
    __device__ uint32_t count() const { return columns / COLUMNS; }

    __device__ static uint32_t place(uint32_t row, uint32_t column) {
        return row * COLUMNS + (column ^ (row / (8 / COLUMNS) & (COLUMNS - 1)));
    }
    __device__ void start(Word *piece, const uint8_t *bytes, uint32_t rows, uint32_t number, uint32_t lane) const {
        const Word *from = reinterpret_cast<const Word *>(bytes) + number * COLUMNS;
        uint32_t column = lane % COLUMNS;
#pragma unroll
        for (uint32_t step = 0; step < COLUMNS; ++step) {
            uint32_t row = step * (LANES / COLUMNS) + lane / COLUMNS;
            if (row < rows) start_copy(piece + place(row, column), from + uint64_t(row) * columns + column);
        }
    }
    __device__ void add(Chain &chain, const Word *piece, uint32_t, uint32_t lane) const {
#pragma unroll
        for (uint32_t column = 0; column < COLUMNS; ++column) {
            Word word = piece[place(lane, column)];
            chain.add(word.x, word.y);
        }
    }
    __device__ Digest finished(Chain &chain, const Word *, uint32_t) const { return chain.finished(columns * 16); }
};

// Pieces of up to 28 words of 4 bytes, for chunks of any number of them. Rows are 29 words apart: lanes that read the same
// column of their rows meet 32 different banks.
struct Pieces4 {
    static constexpr uint32_t COLUMNS = 28, PITCH = COLUMNS + 1, WORDS = LANES * PITCH;
    using Element = uint32_t;
    uint32_t columns;

    __device__ explicit Pieces4(uint32_t chunk_bytes) : columns(chunk_bytes / 4) {}
    __device__ uint32_t count() const { return (columns + COLUMNS - 1) / COLUMNS; }

    __device__ uint32_t width(uint32_t number) const {
        uint32_t left = columns - number * COLUMNS;
        return left < COLUMNS ? left : COLUMNS;
    }
    __device__ void start(uint32_t *piece, const uint8_t *bytes, uint32_t rows, uint32_t number, uint32_t lane) const {
        const uint32_t *from = reinterpret_cast<const uint32_t *>(bytes) + number * COLUMNS;
        uint32_t wide = width(number), row = lane / wide, column = lane % wide;
        for (uint32_t word = lane; word < rows * wide; word += LANES) {
            start_copy(piece + row * PITCH + column, from + uint64_t(row) * columns + column);
            row += LANES / wide;
            column += LANES % wide;
            if (column >= wide) {
                column -= wide;
                ++row;
            }
        }
    }
    __device__ static uint64_t two(const uint32_t *words) { return words[0] | uint64_t(words[1]) << 32; }
    __device__ void add(Chain &chain, const uint32_t *piece, uint32_t number, uint32_t lane) const {
        const uint32_t *row = piece + lane * PITCH;
        for (uint32_t column = 0; column + 4 <= width(number); column += 4)
            chain.add(two(row + column), two(row + column + 2));
    }
    // The words behind the last whole 16 bytes are in the last piece.
    __device__ Digest finished(Chain &chain, const uint32_t *piece, uint32_t lane) const {
        const uint32_t *tail = piece + lane * PITCH + width(count() - 1) / 4 * 4;
        uint32_t left = columns % 4;
        uint64_t low = left > 0 ? tail[0] : 0, high = left > 2 ? tail[2] : 0;
        if (left > 1) low |= uint64_t(tail[1]) << 32;
        return chain.finished(uint64_t(columns) * 4, low, high);
    }
};

// Takes the digests of a group, a lane each; says how many were new.
__device__ inline uint32_t settle(const Checkpoint &checkpoint, const Walk &walk, Digest digest, uint32_t lane) {
    bool is_changed = false;
    if (lane < walk.chunks()) {
        uint32_t chunk = walk.chunk() + lane;
        Digest &known = walk.here().digests[chunk];
        is_changed = chunk >= walk.here().known || !(known == digest);
        if (is_changed) known = digest;
    }
    uint32_t changed = __ballot_sync(ALL_LANES, is_changed);
    if (lane == 0) checkpoint.changed[walk.group] = changed;
    return __popc(changed);
}

template <typename Pieces> __device__ inline void hash_pieces(const Checkpoint &checkpoint, Grain grain) {
    __shared__ typename Pieces::Element shared_words[HASH_WARPS * STAGES * Pieces::WORDS];
    uint32_t lane = threadIdx.x % LANES;
    auto *own_words = shared_words + threadIdx.x / LANES * STAGES * Pieces::WORDS;
    Pieces pieces(checkpoint.chunk_bytes);
    Walk loading(checkpoint, grain), hashing(checkpoint, grain);
    uint32_t loading_piece = 0, hashing_piece = 0, changed = 0;
    auto load_next = [&](uint32_t stage) {
        if (!loading.ended()) {
            pieces.start(own_words + stage * Pieces::WORDS, loading.bytes(), loading.whole_chunks(), loading_piece,
                         lane);
            if (++loading_piece == pieces.count()) {
                loading_piece = 0;
                loading.advance();
            }
        }
        close_group(); // even an empty one, so that the number of groups tells which piece has come
    };
    for (uint32_t stage = 0; stage < STAGES - 1; ++stage) load_next(stage);

    Chain chain;
    uint32_t stage = 0, free_stage = STAGES - 1;
    while (!hashing.ended()) {
        wait_for_groups<int(STAGES) - 2>();
        __syncwarp(); // the other lanes' copies have come too, and nobody reads the piece before this one any more
        load_next(free_stage);
        const auto *piece = own_words + stage * Pieces::WORDS;
        bool is_whole = lane < hashing.whole_chunks();
        if (is_whole) pieces.add(chain, piece, hashing_piece, lane);
        if (++hashing_piece == pieces.count()) {
            Digest digest = {0, 0};
            if (is_whole)
                digest = pieces.finished(chain, piece, lane);
            else if (lane < hashing.chunks())
                digest = digest_of_bytes(hashing.bytes() + uint64_t(lane) * checkpoint.chunk_bytes,
                                         hashing.here().length % checkpoint.chunk_bytes);
            changed += settle(checkpoint, hashing, digest, lane);
            hashing_piece = 0;
            chain = Chain();
            hashing.advance();
        }
        free_stage = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    if (lane == 0 && changed != 0) atomicAdd(&checkpoint.totals->changed, changed);
}

__device__ inline void hash_crooked(const Checkpoint &checkpoint) {
    uint32_t lane = threadIdx.x % LANES, changed = 0;
    for (Walk walk(checkpoint, BY_BYTES); !walk.ended(); walk.advance()) {
        Digest digest = {0, 0};
        if (lane < walk.chunks())
            digest = digest_of_bytes(walk.bytes() + uint64_t(lane) * checkpoint.chunk_bytes,
                                     bytes_of(walk.here(), walk.chunk() + lane, checkpoint.chunk_bytes));
        changed += settle(checkpoint, walk, digest, lane);
    }
    if (lane == 0 && changed != 0) atomicAdd(&checkpoint.totals->changed, changed);
}
