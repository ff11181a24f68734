// T7: how fast the card names all chunks of a region by their digests, and inserts the names in a table.
//
//     t7_hash
//
// Passes if hashing and inserting chunks of 4 KiB reads at least 2 TB/s, and if every digest and every table is right:
// each digest equal to that of the plainest kernel, and that to the host's; each table holding exactly the distinct
// digests, each under its first chunk, for unique chunks and for three kinds of copies.
//
// Registers and spills of the kernels that walk over tiles are in the record. Those of all kernels, without a card:
//
//     nvcc -std=c++17 -O2 -gencode arch=compute_90,code=sm_90 -Xptxas -v -cubin -o /dev/null t7_hash.cu
#include <math.h>

#include <iterator>

#include "t7_kernels.cuh"

constexpr size_t BYTES = 4 * GIB;
constexpr uint32_t SIZES[] = {128, 256, 512, 1024, 4096, 16384, 65536};
constexpr uint32_t LEAST_SIZE = SIZES[0];
constexpr uint32_t PIECE_BYTES = 4096;
constexpr uint32_t CHECKPOINT = 7;
constexpr uint64_t SEED = 7;
constexpr size_t MOST_CHUNKS = BYTES / LEAST_SIZE;
constexpr int WARM_UPS = 2, ROUNDS = 7;
constexpr double NOT_MEASURED = NAN;

// ---- what the device holds ----

static struct {
    Word *words;
    Digest *digests, *expected, *piece_digests;
    Slot *slots;
    unsigned long long *counter;
    cudaEvent_t begin, end;
    uint32_t multiprocessors;
} device;

static void allocate() {
    cudaDeviceProp properties;
    RT(cudaGetDeviceProperties(&properties, 0));
    device.multiprocessors = uint32_t(properties.multiProcessorCount);
    note("%s, %u multiprocessors, %.0f MB of L2 cache", properties.name, device.multiprocessors,
         double(properties.l2CacheSize) / 1e6);
    RT(cudaMalloc(&device.words, BYTES));
    RT(cudaMalloc(&device.digests, MOST_CHUNKS * sizeof(Digest)));
    RT(cudaMalloc(&device.expected, MOST_CHUNKS * sizeof(Digest)));
    RT(cudaMalloc(&device.piece_digests, BYTES / PIECE_BYTES * sizeof(Digest)));
    RT(cudaMalloc(&device.slots, 2 * MOST_CHUNKS * sizeof(Slot)));
    RT(cudaMalloc(&device.counter, sizeof *device.counter));
    RT(cudaEventCreate(&device.begin));
    RT(cudaEventCreate(&device.end));
}

static Work work_of(uint32_t chunk_bytes) {
    return {device.words, uint32_t(BYTES / chunk_bytes), chunk_bytes / uint32_t(sizeof(Word))};
}

// Half full at most. All counts of chunks are powers of two.
static Table table_of(const Work &work) { return {device.slots, 2 * work.chunks - 1}; }

static void clear(Table table) { RT(cudaMemsetAsync(table.slots, 0, (size_t(table.mask) + 1) * sizeof(Slot))); }

// No digest is all ones, but by a chance of 2^-128: what a kernel leaves out shows.
static void poison_digests(const Work &work) {
    RT(cudaMemsetAsync(device.digests, 0xff, work.chunks * sizeof(Digest)));
}

template <typename F> static unsigned long long counted(F count) {
    unsigned long long found;
    RT(cudaMemsetAsync(device.counter, 0, sizeof *device.counter));
    count();
    RT(cudaGetLastError());
    RT(cudaMemcpy(&found, device.counter, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

// Seconds that `run` takes on the device, the median of all rounds. What `before` enqueues is not counted, and keeps
// the device busy until all of `run` is enqueued. Not a number after an error, which is in the record.
template <typename Before, typename Run>
static double median_s(Before before, Run run, int warm_ups = WARM_UPS, int rounds = ROUNDS) {
    std::vector<float> times;
    for (int round = -warm_ups; round < rounds; ++round) {
        before();
        float milliseconds = 0;
        cudaError_t error = cudaEventRecord(device.begin);
        run();
        if (error == cudaSuccess) error = cudaGetLastError();
        if (error == cudaSuccess) error = cudaEventRecord(device.end);
        if (error == cudaSuccess) error = cudaEventSynchronize(device.end);
        if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, device.begin, device.end);
        if (error != cudaSuccess) {
            note("a measurement ended with %s", cudaGetErrorString(error));
            return NOT_MEASURED;
        }
        if (round >= 0) times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3;
}

// ---- the ways to hash ----

static uint32_t blocks_for(size_t threads, uint32_t block) { return uint32_t((threads + block - 1) / block); }

// How many blocks the card holds at once: kernels that walk over tiles are started with no more. `name` is the calling
// function's.
template <typename Kernel> static uint32_t resident_blocks(const char *name, Kernel *kernel, uint32_t shared_bytes) {
    cudaFuncAttributes attributes;
    int blocks = 0;
    RT(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    RT(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, THREADS, shared_bytes));
    RT(cudaFuncGetAttributes(&attributes, kernel));
    const char *which = strstr(name, "[with"); // the parameters of the template
    note("%d registers, %zu bytes of spills, %d warps on a multiprocessor: %s", attributes.numRegs,
         attributes.localSizeBytes, blocks * int(WARPS), which != nullptr ? which : name);
    if (blocks < 1) broken(name, "no block fits", __FILE__, __LINE__);
    return uint32_t(blocks) * device.multiprocessors;
}

static uint32_t walking_blocks(const Work &work, uint32_t resident) {
    return std::min(blocks_for(work.chunks / LANES, WARPS), resident);
}

template <uint32_t AHEAD> struct Direct {
    static constexpr uint32_t LEAST_WORDS = AHEAD;

    template <typename Sink> static void launch(const Work &work, Sink sink) {
        hash_direct<AHEAD, Sink><<<blocks_for(work.chunks, THREADS), THREADS>>>(work, sink);
    }
};

template <uint32_t COLUMNS, uint32_t STAGES, int PREFETCH> struct Tiles {
    static constexpr uint32_t LEAST_WORDS = COLUMNS;

    template <typename Sink> static void launch(const Work &work, Sink sink) {
        constexpr uint32_t BYTES_SHARED = tiles_bytes(COLUMNS, STAGES);
        auto *kernel = hash_tiles<COLUMNS, STAGES, PREFETCH, Sink>;
        static const uint32_t resident = resident_blocks(__PRETTY_FUNCTION__, kernel, BYTES_SHARED);
        kernel<<<walking_blocks(work, resident), THREADS, BYTES_SHARED>>>(work, sink);
    }
};

// The region as a table for the copy engine: a row for each chunk, of halves of words.
static CUresult describe(const Work &work, CUtensorMap *map) {
    static const auto encode = [] {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        void *found = library != nullptr ? dlsym(library, "cuTensorMapEncodeTiled") : nullptr;
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    if (encode == nullptr) return CUDA_ERROR_NOT_FOUND;
    cuuint64_t extent[] = {work.words_per_chunk * 2, work.chunks}, pitch[] = {work.words_per_chunk * sizeof(Word)};
    cuuint32_t box[] = {ENGINE_COLUMNS * 2, LANES}, step[] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 2, const_cast<Word *>(work.words), extent, pitch, box, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <uint32_t STAGES> struct Engine {
    static constexpr uint32_t LEAST_WORDS = ENGINE_COLUMNS;

    template <typename Sink> static void launch(const Work &work, Sink sink) {
        constexpr uint32_t BYTES_SHARED = engine_bytes(STAGES);
        auto *kernel = hash_by_engine<STAGES, Sink>;
        static const uint32_t resident = resident_blocks(__PRETTY_FUNCTION__, kernel, BYTES_SHARED);
        CUtensorMap map;
        CU(describe(work, &map));
        kernel<<<walking_blocks(work, resident), THREADS, BYTES_SHARED>>>(map, work, sink);
    }
};

// Another digest: that of the digests of the chunk's pieces of 4 KiB. So a large chunk has many chains.
struct Tree {
    static constexpr uint32_t LEAST_WORDS = 4 * PIECE_BYTES / sizeof(Word);

    template <typename Sink> static void launch(const Work &work, Sink sink) {
        uint32_t pieces = work.words_per_chunk * uint32_t(sizeof(Word)) / PIECE_BYTES;
        Work leaves = {work.words, work.chunks * pieces, uint32_t(PIECE_BYTES / sizeof(Word))};
        Work roots = {reinterpret_cast<const Word *>(device.piece_digests), work.chunks, pieces};
        Tiles<8, 3, 128>::launch(leaves, Store{device.piece_digests});
        Direct<4>::launch(roots, sink);
    }
};

// ---- one face for all of them ----

enum Claims { WHOLE, HALVES, AFTER_LOOK, CLAIMS };
constexpr const char *CLAIM_NAMES[CLAIMS] = {"128-bit", "two halves", "after a look"};

template <typename Claim> static Insert<Claim> insert_into(Table table) { return {table, CHECKPOINT}; }

struct Variant {
    const char *name;
    uint32_t least_words;
    void (*store)(const Work &, Store);
    void (*insert[CLAIMS])(const Work &, Table);

    bool takes(const Work &work) const { return work.words_per_chunk >= least_words; }
};

template <typename Way, typename Claim> static void hash_and_insert(const Work &work, Table table) {
    Way::launch(work, insert_into<Claim>(table));
}

template <typename Way> static constexpr Variant variant(const char *name) {
    return {
        name,
        Way::LEAST_WORDS,
        Way::template launch<Store>,
        {hash_and_insert<Way, ClaimWhole>, hash_and_insert<Way, ClaimHalves>, hash_and_insert<Way, ClaimAfterLook>}};
}

// A tile's row in bytes, and how many tiles a warp has in shared memory.
enum Variants { DIRECT, DIRECT_8, TILES_2, TILES_3, TILES_4, WIDE_2, ENGINE, TREE, VARIANTS };
constexpr Variant ALL[VARIANTS] = {variant<Direct<1>>("direct"),         variant<Direct<8>>("direct 8"),
                                   variant<Tiles<8, 2, 128>>("128 x 2"), variant<Tiles<8, 3, 128>>("128 x 3"),
                                   variant<Tiles<8, 4, 256>>("128 x 4"), variant<Tiles<16, 2, 256>>("256 x 2"),
                                   variant<Engine<3>>("engine"),         variant<Tree>("tree")};

template <typename Claim> static void insert_digests(const Work &work, Table table) {
    sink_all<<<blocks_for(work.chunks, 256), 256>>>(device.expected, work.chunks, insert_into<Claim>(table));
}

constexpr void (*INSERT_ONLY[CLAIMS])(const Work &, Table) = {insert_digests<ClaimWhole>, insert_digests<ClaimHalves>,
                                                              insert_digests<ClaimAfterLook>};

// ---- checks ----

static bool correct = true;

static void check(bool right, const char *what, const char *who, const Work &work) {
    if (right) return;
    note("WRONG: %s, %s, chunks of %zu bytes", what, who, work.words_per_chunk * sizeof(Word));
    correct = false;
}

static Digest reference_tree(const unsigned char *chunk, size_t bytes) {
    std::vector<Digest> pieces;
    for (size_t at = 0; at < bytes; at += PIECE_BYTES) pieces.push_back(reference_digest(chunk + at, PIECE_BYTES));
    return reference_digest(pieces.data(), pieces.size() * sizeof(Digest));
}

// Some of the digests against the host's, the first and the last among them.
static bool samples_are_right(const Work &work, bool tree) {
    size_t bytes = work.words_per_chunk * sizeof(Word);
    std::vector<unsigned char> chunk(bytes);
    for (uint32_t sample = 0; sample < 48; ++sample) {
        uint32_t at = sample < 2 ? sample * (work.chunks - 1) : uint32_t(word_at(sample, SEED) % work.chunks);
        Digest digest;
        RT(cudaMemcpy(chunk.data(), work.words + size_t(at) * work.words_per_chunk, bytes, cudaMemcpyDeviceToHost));
        RT(cudaMemcpy(&digest, device.digests + at, sizeof digest, cudaMemcpyDeviceToHost));
        Digest right = tree ? reference_tree(chunk.data(), bytes) : reference_digest(chunk.data(), bytes);
        if (!(digest == right)) return false;
    }
    return true;
}

static unsigned long long different_digests(const Work &work) {
    return counted([&] {
        count_different<<<blocks_for(work.chunks, 256), 256>>>(device.digests, device.expected, work.chunks,
                                                               device.counter);
    });
}

static uint32_t distinct(Copies copies, uint32_t chunks) {
    if (copies == NO_COPIES) return chunks;
    return copies == COPY_OF_FIRST ? 1 : chunks / 2;
}

// Whether the table holds what the chunks with the digests `expected` give.
static bool table_is_right(const Work &work, Copies copies) {
    Table table = table_of(work);
    auto occupied = counted([&] { count_occupied<<<4096, 256>>>(table, device.counter); });
    auto misnamed = counted([&] {
        count_misnamed<<<blocks_for(work.chunks, 256), 256>>>(device.expected, work.chunks, copies, CHECKPOINT, table,
                                                              device.counter);
    });
    if (occupied == distinct(copies, work.chunks) && misnamed == 0) return true;
    note("%llu digests in the table of %u expected, %llu chunks misnamed", occupied, distinct(copies, work.chunks),
         misnamed);
    return false;
}

static void set_expected(const Work &work) {
    RT(cudaMemcpy(device.expected, device.digests, work.chunks * sizeof(Digest), cudaMemcpyDeviceToDevice));
}

// ---- measurements ----

// Seconds of one chunk size.
struct Row {
    uint32_t chunk_bytes;
    double hash[VARIANTS];            // alone
    double insert[VARIANTS][CLAIMS];  // with the hash
    double insert_new[CLAIMS] = {};   // from digests, which the table does not have
    double insert_again[CLAIMS] = {}; // from digests, all of which it has
    double equal[CLAIMS] = {};        // with the hash, all chunks equal

    explicit Row(uint32_t bytes) : chunk_bytes(bytes) {
        std::fill(std::begin(hash), std::end(hash), NOT_MEASURED);
        for (auto &claims : insert) std::fill(std::begin(claims), std::end(claims), NOT_MEASURED);
    }
    double chunks() const { return double(BYTES / chunk_bytes); }
};

static double terabytes_per_s(double seconds) { return double(BYTES) / 1e12 / seconds; }

// Hashing alone. The digests stay in `digests`.
static bool measure_hash(Row &row, int which) {
    Work work = work_of(row.chunk_bytes);
    row.hash[which] = median_s([&] { poison_digests(work); }, [&] { ALL[which].store(work, {device.digests}); });
    return !isnan(row.hash[which]);
}

static bool measure_insert(Row &row, int which) {
    Work work = work_of(row.chunk_bytes);
    Table table = table_of(work);
    for (int claim = 0; claim < CLAIMS; ++claim) {
        double &seconds = row.insert[which][claim];
        seconds = median_s([&] { clear(table); }, [&] { ALL[which].insert[claim](work, table); });
        if (isnan(seconds)) return false;
        check(table_is_right(work, NO_COPIES), CLAIM_NAMES[claim], ALL[which].name, work);
    }
    return true;
}

static void measure_insert_only(Row &row) {
    Work work = work_of(row.chunk_bytes);
    Table table = table_of(work);
    for (int claim = 0; claim < CLAIMS; ++claim) {
        auto insert = [&] { INSERT_ONLY[claim](work, table); };
        row.insert_new[claim] = median_s([&] { clear(table); }, insert);
        check(table_is_right(work, NO_COPIES), CLAIM_NAMES[claim], "insert alone", work);
        row.insert_again[claim] = median_s([] {}, insert);
        check(table_is_right(work, NO_COPIES), CLAIM_NAMES[claim], "insert again", work);
    }
}

static void fill_with(const Work &work, Copies copies) {
    fill_chunks<<<4096, 256>>>(reinterpret_cast<uint64_t *>(device.words), work.chunks, work.words_per_chunk * 2,
                               copies, SEED);
    RT(cudaGetLastError());
}

// Equal chunks that are hashed and inserted at the same time, by neighbours in a warp, and by warps far apart. The last
// are all equal, as empty memory is, and meet in one slot: the time of these stays, taken once, because it may be long.
static void check_copies(Row &row) {
    Work work = work_of(row.chunk_bytes);
    Table table = table_of(work);
    for (Copies copies : {COPY_OF_NEIGHBOUR, COPY_OF_FIRST_HALF, COPY_OF_FIRST}) {
        fill_with(work, copies);
        ALL[TILES_3].store(work, {device.digests});
        RT(cudaGetLastError());
        set_expected(work);
        for (int claim = 0; claim < CLAIMS; ++claim) {
            auto insert = [&] { ALL[TILES_3].insert[claim](work, table); };
            row.equal[claim] = median_s([&] { clear(table); }, insert, 0, 1);
            check(table_is_right(work, copies), CLAIM_NAMES[claim], "copies", work);
        }
    }
}

static Row measure_size(uint32_t chunk_bytes) {
    Row row(chunk_bytes);
    Work work = work_of(chunk_bytes);
    fill_with(work, NO_COPIES);
    for (int which = 0; which < VARIANTS; ++which) {
        if (which == ENGINE || !ALL[which].takes(work)) continue;
        if (!measure_hash(row, which)) broken(ALL[which].name, "no time", __FILE__, __LINE__);
        if (which == DIRECT || which == TREE) {
            check(samples_are_right(work, which == TREE), "samples", ALL[which].name, work);
            set_expected(work);
        }
        check(different_digests(work) == 0, "digests", ALL[which].name, work);
        if (!measure_insert(row, which)) broken(ALL[which].name, "no time", __FILE__, __LINE__);
        if (which == DIRECT) measure_insert_only(row);
    }
    check_copies(row);
    return row;
}

// The copy engine comes last, because a fault of a kernel ends the use of the card: what was measured before then
// counts. Wrong digests of it are in the record, and rule out the engine only.
static void measure_engine(std::vector<Row> &rows) {
    for (Row &row : rows) {
        Work work = work_of(row.chunk_bytes);
        CUtensorMap map;
        CUresult error = describe(work, &map);
        if (error != CUDA_SUCCESS) return note("the copy engine is left out: %s", cu_name(error));
        fill_with(work, NO_COPIES);
        ALL[DIRECT].store(work, {device.digests});
        RT(cudaGetLastError());
        set_expected(work);
        if (!measure_hash(row, ENGINE)) return note("the copy engine is given up");
        unsigned long long different = different_digests(work);
        if (different != 0) {
            row.hash[ENGINE] = NOT_MEASURED;
            return note("the copy engine is given up: %llu wrong digests of %u", different, work.chunks);
        }
        if (!measure_insert(row, ENGINE)) return note("the copy engine is given up");
    }
}

// What the memory gives at best, in TB/s: reading alone, and a copy, whose bytes count twice.
struct Ceilings {
    double read, copy;
};

static Ceilings measure_ceilings() {
    void *other;
    RT(cudaMalloc(&other, BYTES));
    fill(device.words, BYTES, SEED);
    auto read = [&] {
        read_only<<<device.multiprocessors * 8, 256>>>(device.words, BYTES / sizeof(Word), &device.digests->first);
    };
    double read_s = median_s([&] { RT(cudaMemsetAsync(other, 0, 64 * MIB)); }, read);
    auto copy = [&] { RT(cudaMemcpyAsync(other, device.words, BYTES, cudaMemcpyDeviceToDevice)); };
    double copy_s = median_s([] {}, copy);
    RT(cudaFree(other));
    Ceilings ceilings = {terabytes_per_s(read_s), 2 * terabytes_per_s(copy_s)};
    note("ceilings: reading %.2f TB/s; a copy on the device %.2f TB/s read and written", ceilings.read, ceilings.copy);
    return ceilings;
}

// ---- the record ----

static std::string cell(double value) {
    char text[32];
    snprintf(text, sizeof text, "%9.2f", value);
    return isnan(value) ? "        -" : text;
}

static void print_by_variant(const char *what, const std::vector<Row> &rows, double (*seconds)(const Row &, int)) {
    std::string header;
    for (const Variant &one : ALL) {
        char text[16];
        snprintf(text, sizeof text, "%9s", one.name);
        header += text;
    }
    note("%s, TB/s of data read", what);
    note("  chunk %s", header.c_str());
    for (const Row &row : rows) {
        std::string line;
        for (int which = 0; which < VARIANTS; ++which) line += cell(terabytes_per_s(seconds(row, which)));
        note("%5u B %s", row.chunk_bytes, line.c_str());
    }
}

static void print_by_claim(const std::vector<Row> &rows) {
    note("inserting digests, 10^9 a second, by %s / %s / %s", CLAIM_NAMES[0], CLAIM_NAMES[1], CLAIM_NAMES[2]);
    note("  chunk  ---------- new ----------  --------- again ---------  with the hash, all chunks equal");
    for (const Row &row : rows) {
        std::string line;
        for (const double *seconds : {row.insert_new, row.insert_again, row.equal})
            for (int claim = 0; claim < CLAIMS; ++claim) line += cell(row.chunks() / 1e9 / seconds[claim]);
        note("%5u B %s", row.chunk_bytes, line.c_str());
    }
}

// The fastest that gives Murmur3 of the whole chunk.
struct Best {
    double hash = 0, insert = 0;
    const char *hash_by = "nothing", *insert_by = "nothing", *claim = "";

    explicit Best(const Row &row) {
        for (int which = 0; which < TREE; ++which) {
            if (terabytes_per_s(row.hash[which]) > hash) {
                hash = terabytes_per_s(row.hash[which]);
                hash_by = ALL[which].name;
            }
            for (int claim_by = 0; claim_by < CLAIMS; ++claim_by) {
                if (!(terabytes_per_s(row.insert[which][claim_by]) > insert)) continue;
                insert = terabytes_per_s(row.insert[which][claim_by]);
                insert_by = ALL[which].name;
                claim = CLAIM_NAMES[claim_by];
            }
        }
    }
};

static const Row &row_of(const std::vector<Row> &rows, uint32_t chunk_bytes) {
    for (const Row &row : rows)
        if (row.chunk_bytes == chunk_bytes) return row;
    broken("the rows", "a size is missing", __FILE__, __LINE__);
}

int main() {
    double begun = now_s();
    if (!reference_is_right()) return result("T7", false, "the host's Murmur3 does not give the published digests");
    allocate();
    Ceilings ceilings = measure_ceilings();
    std::vector<Row> rows;
    for (uint32_t chunk_bytes : SIZES) rows.push_back(measure_size(chunk_bytes));
    measure_engine(rows);
    print_by_variant("hash alone", rows, [](const Row &row, int which) { return row.hash[which]; });
    print_by_variant("hash and insert, 128-bit", rows,
                     [](const Row &row, int which) { return row.insert[which][WHOLE]; });
    print_by_variant("hash and insert, two halves", rows,
                     [](const Row &row, int which) { return row.insert[which][HALVES]; });
    print_by_variant("hash and insert, after a look", rows,
                     [](const Row &row, int which) { return row.insert[which][AFTER_LOOK]; });
    print_by_claim(rows);
    Best least(row_of(rows, LEAST_SIZE)), page(row_of(rows, 4096));
    note("all took %.1f s", now_s() - begun);
    return result("T7", correct && page.insert >= 2,
                  "4 KiB: hash %.2f TB/s (%s), hash and insert %.2f (%s, %s); 128 B: %.2f (%s), %.2f (%s, %s); "
                  "reading alone %.2f, a copy %.2f%s",
                  page.hash, page.hash_by, page.insert, page.insert_by, page.claim, least.hash, least.hash_by,
                  least.insert, least.insert_by, least.claim, ceilings.read, ceilings.copy,
                  correct ? "" : "; WRONG results");
}
