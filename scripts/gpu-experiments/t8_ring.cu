// T8: a ring of pinned buffers against the driver's own ways to move device memory to the host and back.
//
//     t8_ring
//
// Passes if the best ring whose other side copies from or to pageable memory moves at least 45 GB/s in each direction,
// and if all data is right. Measured beside it: the ring alone, both directions at once, cudaMemcpy with pageable and
// pinned memory, what pinning costs, and the driver's checkpoint and restore. Bytes are counted once, and a GB is 10^9
// of them.
#include <emmintrin.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "pattern.cuh"

constexpr size_t BYTES = 8 * GIB;      // of the figures that count
constexpr size_t RAW_SURVEY = 4 * GIB; // of those that only find the best shape
constexpr size_t SURVEY = 2 * GIB;
constexpr size_t REGISTERED = 4 * GIB;
constexpr size_t PAGE = 4096;
constexpr double ENOUGH = 45;        // GB/s
constexpr double SURVEY_ENDS_S = 50; // seconds from the start, so that a slow machine still gets to the end
constexpr double DRIVER_MAY_TAKE_S = 40;

enum Direction { TO_HOST, TO_DEVICE };
constexpr Direction DIRECTIONS[] = {TO_HOST, TO_DEVICE};
constexpr const char *DIRECTION_NAMES[] = {"to host", "to device"};

enum Copying { MEMCPY, STREAMING };
constexpr Copying COPYINGS[] = {MEMCPY, STREAMING};
constexpr const char *COPYING_NAMES[] = {"memcpy", "streaming"};

static const double started_s = now_s();
static bool correct = true;
static uint64_t last_seed = 0;

static double gigabytes_per_s(size_t bytes, double seconds) { return double(bytes) / 1e9 / seconds; }

// ---- memory of the host ----

// Calls part(begin, end) for parts of [0, bytes), by 8 threads. Parts begin at pages.
template <typename F> static void in_parallel(size_t bytes, F part) {
    constexpr size_t THREADS = 8;
    std::vector<std::thread> threads;
    auto bound = [&](size_t thread) { return bytes / PAGE * thread / THREADS * PAGE; };
    for (size_t thread = 0; thread < THREADS; ++thread)
        threads.emplace_back([&, thread] { part(bound(thread), bound(thread + 1)); });
    for (std::thread &thread : threads) thread.join();
}

static void fill_host(char *memory, size_t bytes, uint64_t seed) {
    in_parallel(bytes, [&](size_t begin, size_t end) {
        uint64_t *words = reinterpret_cast<uint64_t *>(memory);
        for (size_t at = begin / 8; at < end / 8; ++at) words[at] = word_at(at, seed);
    });
}

// How many words are not what `fill` writes. Looks at one word of every STEP, a changing one.
template <size_t STEP> static size_t wrong_host_words(const char *memory, size_t bytes, uint64_t seed) {
    std::atomic<size_t> wrong{0};
    in_parallel(bytes, [&](size_t begin, size_t end) {
        const uint64_t *words = reinterpret_cast<const uint64_t *>(memory);
        size_t mine = 0;
        for (size_t at = begin / 8; at < end / 8; at += STEP) {
            size_t sample = at + at / STEP * 37 % STEP;
            mine += words[sample] != word_at(sample, seed);
        }
        wrong += mine;
    });
    return wrong;
}

enum Checking { SAMPLES, EVERY_WORD };

// Memory of the host and what was written there.
struct Content {
    char *memory;
    uint64_t seed = 0;

    bool is_right(size_t bytes, Checking checking) const {
        return (checking == SAMPLES ? wrong_host_words<PAGE / 8> : wrong_host_words<1>)(memory, bytes, seed) == 0;
    }
};

// Pageable memory. Small pages or huge ones, as far as the kernel follows the advice.
struct Region : Content {
    size_t bytes;

    Region(size_t size, bool huge) : Content{nullptr}, bytes(size) {
        void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) broken("mmap", strerror(errno), __FILE__, __LINE__);
        memory = static_cast<char *>(mapped);
        if (madvise(mapped, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == -1)
            note("the kernel takes no advice on %s pages: %s", huge ? "huge" : "small", strerror(errno));
    }
    Region(const Region &) = delete;
    ~Region() {
        if (munmap(memory, bytes) == -1) note("munmap: %s", strerror(errno));
    }
    double touch_s() {
        double begun = now_s();
        in_parallel(bytes, [&](size_t begin, size_t end) {
            for (size_t at = begin; at < end; at += PAGE) static_cast<volatile char *>(memory)[at] = 1;
        });
        return now_s() - begun;
    }
};

static const char *pages_name(bool huge) { return huge ? "huge pages" : "small pages"; }

static void note_huge_pages(const char *when) {
    for (const std::string &line : lines_of("/proc/self/smaps_rollup"))
        if (line.rfind("AnonHugePages:", 0) == 0) note("%s: %s", when, line.c_str());
}

// ---- the ring ----

constexpr unsigned BUFFER_COUNTS[] = {2, 4, 8};
constexpr size_t BUFFER_SIZES[] = {1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB};
constexpr unsigned MOST_BUFFERS = 8, MOST_STREAMS = 2;
constexpr size_t MOST_BUFFER_BYTES = MOST_BUFFERS * 64 * MIB;

struct Ring {
    char *buffers;
    cudaStream_t streams[MOST_STREAMS];
    cudaEvent_t events[MOST_BUFFERS];

    Ring() {
        RT(cudaMallocHost(&buffers, MOST_BUFFER_BYTES));
        for (cudaStream_t &stream : streams) RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (cudaEvent_t &event : events) RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    }
    Ring(const Ring &) = delete;
    ~Ring() {
        for (cudaEvent_t event : events) RT(cudaEventDestroy(event));
        for (cudaStream_t stream : streams) RT(cudaStreamDestroy(stream));
        RT(cudaFreeHost(buffers));
    }
};

struct Shape {
    unsigned buffers = 4;
    size_t buffer_bytes = 16 * MIB;
    unsigned streams = 1;
    unsigned copiers = 0; // threads that copy from or to pageable memory; if none, nobody looks at the buffers
    Copying copying = MEMCPY;

    std::string text() const {
        std::string what = std::to_string(buffers) + " x " + std::to_string(buffer_bytes / MIB) + " MiB, " +
                           std::to_string(streams) + (streams == 1 ? " stream" : " streams");
        if (copiers == 0) return what;
        return what + ", " + std::to_string(copiers) + (copiers == 1 ? " thread, " : " threads, ") +
               COPYING_NAMES[copying];
    }
};

// Stores that go past the caches: the memory written is not read first, and nothing that is needed is evicted.
static void copy_streaming(char *to, const char *from, size_t bytes) {
    __m128i *target = reinterpret_cast<__m128i *>(to);
    const __m128i *source = reinterpret_cast<const __m128i *>(from);
    for (size_t at = 0; at < bytes / sizeof(__m128i); at += 4) {
        __m128i first = _mm_load_si128(source + at), second = _mm_load_si128(source + at + 1);
        __m128i third = _mm_load_si128(source + at + 2), fourth = _mm_load_si128(source + at + 3);
        _mm_stream_si128(target + at, first);
        _mm_stream_si128(target + at + 1, second);
        _mm_stream_si128(target + at + 2, third);
        _mm_stream_si128(target + at + 3, fourth);
    }
    _mm_sfence(); // these stores are not ordered with the one that says that the copy is done
}

// Waiting without giving up the processor, since what is awaited is microseconds away; but not for ever, in case that
// threads are more than processors.
template <typename F> static void wait_until(F condition) {
    for (unsigned turn = 1; !condition(); ++turn) {
        if (turn % 256 == 0) std::this_thread::yield();
        _mm_pause();
    }
}

// Data on its way through the ring, in pieces of a buffer each; piece p uses buffer p % buffers. The thread that calls
// run() starts the transfers. Each copier copies its slice of every piece, so that one buffer keeps all of them busy.
class Passage {
  public:
    Passage(const Ring &ring, const Shape &shape, Direction direction, char *device, char *host, size_t bytes)
        : ring(ring), shape(shape), direction(direction), device(device), host(host),
          pieces(bytes / shape.buffer_bytes), head_start(direction == TO_DEVICE ? shape.buffers : 0),
          released(head_start) {}

    // Seconds from the first transfer, or the first copy, to the end of the last.
    double run() {
        std::vector<std::thread> threads;
        for (unsigned copier = 0; copier < shape.copiers; ++copier)
            threads.emplace_back([this, copier] { copy(copier); });
        wait_until([&] { return present.load() == shape.copiers; });
        double begun = now_s();
        go.store(true);
        transfer();
        for (uint64_t piece = pieces - std::min<uint64_t>(pieces, shape.buffers); piece < pieces; ++piece)
            wait_until([&] { return is_copied(piece); });
        double seconds = now_s() - begun;
        for (std::thread &thread : threads) thread.join();
        return seconds;
    }

  private:
    const Ring &ring;
    const Shape shape;
    const Direction direction;
    char *const device, *const host;
    const uint64_t pieces;
    // The copiers of data for the device may fill all buffers before anything is transferred.
    const uint64_t head_start;
    // How many slices have been copied from or to each buffer since the start.
    struct alignas(64) Counter {
        std::atomic<uint64_t> count{0};
    } copied[MOST_BUFFERS];
    // The copiers may copy the pieces below this one.
    alignas(64) std::atomic<uint64_t> released;
    alignas(64) std::atomic<unsigned> present{0};
    std::atomic<bool> go{false};

    char *buffer_of(uint64_t piece) const { return ring.buffers + piece % shape.buffers * shape.buffer_bytes; }

    // Copiers take a buffer again only after all have left it, so the count tells which piece all of them have done.
    bool is_copied(uint64_t piece) const {
        return copied[piece % shape.buffers].count.load(std::memory_order_acquire) >=
               shape.copiers * (piece / shape.buffers + 1);
    }

    void copy(unsigned copier) {
        auto bound = [&](unsigned of) { return shape.buffer_bytes / PAGE * of / shape.copiers * PAGE; };
        size_t begin = bound(copier), length = bound(copier + 1) - begin;
        present.fetch_add(1);
        wait_until([&] { return go.load(); });
        for (uint64_t piece = 0; piece < pieces; ++piece) {
            wait_until([&] { return released.load(std::memory_order_acquire) > piece; });
            char *pinned = buffer_of(piece) + begin, *pageable = host + piece * shape.buffer_bytes + begin;
            char *to = direction == TO_HOST ? pageable : pinned, *from = direction == TO_HOST ? pinned : pageable;
            if (shape.copying == STREAMING)
                copy_streaming(to, from, length);
            else
                memcpy(to, from, length);
            copied[piece % shape.buffers].count.fetch_add(1, std::memory_order_release);
        }
    }

    bool may_start(uint64_t piece) const {
        if (direction == TO_DEVICE) return is_copied(piece);
        return piece < shape.buffers || is_copied(piece - shape.buffers);
    }

    void start(uint64_t piece) const {
        cudaStream_t stream = ring.streams[piece % shape.streams];
        char *there = device + piece * shape.buffer_bytes;
        if (direction == TO_HOST)
            RT(cudaMemcpyAsync(buffer_of(piece), there, shape.buffer_bytes, cudaMemcpyDeviceToHost, stream));
        else
            RT(cudaMemcpyAsync(there, buffer_of(piece), shape.buffer_bytes, cudaMemcpyHostToDevice, stream));
        RT(cudaEventRecord(ring.events[piece % shape.buffers], stream));
    }

    bool has_arrived(uint64_t piece) const {
        cudaError_t state = cudaEventQuery(ring.events[piece % shape.buffers]);
        if (state == cudaErrorNotReady) {
            cudaGetLastError(); // else the next check of a launch would find it
            return false;
        }
        RT(state);
        return true;
    }

    void transfer() {
        uint64_t begun = 0, arrived = 0;
        while (arrived < pieces) {
            if (begun < pieces && begun < arrived + shape.buffers && may_start(begun)) {
                start(begun++);
            } else if (arrived < begun && has_arrived(arrived)) {
                ++arrived;
                released.store(arrived + head_start, std::memory_order_release);
            } else {
                _mm_pause();
            }
        }
    }
};

// ---- one passage, checked ----

// After a passage that nobody copied: the device holds the content of the buffers, over and over.
static __global__ void count_wrong_ring_words(const uint64_t *words, size_t count, size_t words_in_ring, uint64_t seed,
                                              unsigned long long *wrong) {
    unsigned long long mine = 0;
    for (size_t at = blockIdx.x * size_t(blockDim.x) + threadIdx.x; at < count; at += size_t(gridDim.x) * blockDim.x)
        mine += words[at] != word_at(at % words_in_ring, seed);
    if (mine != 0) atomicAdd(wrong, mine);
}

static bool device_repeats_ring(const char *device, size_t bytes, const Shape &shape, uint64_t seed) {
    unsigned long long *wrong, count;
    RT(cudaMalloc(&wrong, sizeof *wrong));
    RT(cudaMemset(wrong, 0, sizeof *wrong));
    count_wrong_ring_words<<<1024, 256>>>(reinterpret_cast<const uint64_t *>(device), bytes / 8,
                                          shape.buffers * shape.buffer_bytes / 8, seed, wrong);
    RT(cudaGetLastError());
    RT(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    RT(cudaFree(wrong));
    return count == 0;
}

// The buffers hold the last pieces; all shapes divide all sizes, so the last one is in the last buffer.
static bool ring_holds_the_end(const Ring &ring, size_t bytes, const Shape &shape, uint64_t seed) {
    size_t in_ring = shape.buffers * shape.buffer_bytes;
    const uint64_t *words = reinterpret_cast<const uint64_t *>(ring.buffers);
    for (size_t at = 0; at < in_ring / 8; at += PAGE / 8)
        if (words[at] != word_at((bytes - in_ring) / 8 + at, seed)) return false;
    return true;
}

// What a passage starts from: on the device a content never used before, or none.
static uint64_t prepare(Direction direction, char *device, size_t bytes) {
    uint64_t seed = ++last_seed;
    if (direction == TO_HOST) {
        fill(device, bytes, seed);
    } else {
        RT(cudaMemset(device, 0, bytes));
        RT(cudaDeviceSynchronize());
    }
    return seed;
}

static void check(bool right, const char *what, const std::string &shape, Direction direction) {
    if (right) return;
    note("WRONG data: %s, %s, %s", what, shape.c_str(), DIRECTION_NAMES[direction]);
    correct = false;
}

// After a passage from a device with content `seed` to the host, or from the host to a device with none.
static void check_copied(Direction direction, const char *device, Content &content, size_t bytes, uint64_t seed,
                         Checking checking, const std::string &what) {
    if (direction == TO_HOST) content.seed = seed;
    check(direction == TO_HOST ? content.is_right(bytes, checking) : wrong_words(device, bytes, content.seed) == 0,
          "copied", what, direction);
}

static void check_raw(Direction direction, const char *device, const Ring &ring, const Shape &shape, size_t bytes,
                      uint64_t seed, uint64_t ring_seed) {
    check(direction == TO_HOST ? ring_holds_the_end(ring, bytes, shape, seed)
                               : device_repeats_ring(device, bytes, shape, ring_seed),
          "raw", shape.text(), direction);
}

// GB/s of the ring alone. For TO_DEVICE its buffers must hold what fill_host writes with `ring_seed`.
static double raw_rate(const Ring &ring, const Shape &shape, Direction direction, char *device, size_t bytes,
                       uint64_t ring_seed) {
    uint64_t seed = prepare(direction, device, bytes);
    double seconds = Passage(ring, shape, direction, device, nullptr, bytes).run();
    check_raw(direction, device, ring, shape, bytes, seed, ring_seed);
    return gigabytes_per_s(bytes, seconds);
}

static double copied_rate(const Ring &ring, const Shape &shape, Direction direction, char *device, Content &content,
                          size_t bytes, Checking checking) {
    uint64_t seed = prepare(direction, device, bytes);
    double seconds = Passage(ring, shape, direction, device, content.memory, bytes).run();
    check_copied(direction, device, content, bytes, seed, checking, shape.text());
    return gigabytes_per_s(bytes, seconds);
}

template <typename F> static double median_of_three(F rate) {
    double rates[] = {rate(), rate(), rate()};
    std::sort(rates, rates + 3);
    return rates[1];
}

// ---- the figures ----

struct Best {
    double rate = 0; // GB/s
    Shape shape;
    const char *pages = "";

    void take(double new_rate, const Shape &new_shape, const char *new_pages = "") {
        if (new_rate > rate) *this = {new_rate, new_shape, new_pages};
    }
};

// By direction.
struct Figures {
    Best raw[2], copied[2];
    double pageable[2] = {}, pinned[2] = {}, both_raw[2] = {}, both_copied[2] = {};
    double driver[2] = {}; // checkpoint, restore
};

static bool survey_goes_on() {
    static bool said = false;
    if (now_s() - started_s < SURVEY_ENDS_S) return true;
    if (!said) note("the survey is cut short after %.0f s", SURVEY_ENDS_S);
    said = true;
    return false;
}

// Tries all sizes of buffers for what else `shape` says, and writes a line.
template <typename F> static void survey_sizes(Shape shape, Direction direction, Best &best, F rate_of) {
    std::string line;
    for (size_t size : BUFFER_SIZES) {
        if (!survey_goes_on()) return;
        shape.buffer_bytes = size;
        double rate = rate_of(shape);
        best.take(rate, shape);
        char text[48];
        snprintf(text, sizeof text, "  %zu MiB %.1f", size / MIB, rate);
        line += text;
    }
    std::string rest = shape.text();
    note("%s, %u buffers%s:%s GB/s", DIRECTION_NAMES[direction], shape.buffers, rest.c_str() + rest.find(','),
         line.c_str());
}

static void measure_raw(const Ring &ring, char *device, Figures &figures) {
    for (Direction direction : DIRECTIONS) {
        uint64_t ring_seed = ++last_seed;
        if (direction == TO_DEVICE) fill_host(ring.buffers, MOST_BUFFER_BYTES, ring_seed);
        auto rate = [&](const Shape &shape, size_t bytes) {
            return raw_rate(ring, shape, direction, device, bytes, ring_seed);
        };
        Best found;
        for (unsigned streams = 1; streams <= MOST_STREAMS; ++streams)
            for (unsigned buffers : BUFFER_COUNTS) {
                Shape shape;
                shape.buffers = buffers;
                shape.streams = streams;
                survey_sizes(shape, direction, found, [&](const Shape &tried) { return rate(tried, RAW_SURVEY); });
            }
        figures.raw[direction].take(median_of_three([&] { return rate(found.shape, BYTES); }), found.shape);
    }
}

static std::vector<unsigned> copier_counts() {
    std::vector<unsigned> counts = {1, 4, 8};
    if (std::thread::hardware_concurrency() >= 14) counts.push_back(12);
    return counts;
}

// Which ring is best when its other side copies. One thread is slow with any ring, so it is tried with one count only.
static Shape survey_copied(const Ring &ring, Direction direction, char *device, Region &region, unsigned streams) {
    Best found;
    found.shape.copiers = 8; // if time is up already
    for (Copying copying : COPYINGS)
        for (unsigned copiers : copier_counts())
            for (unsigned buffers : BUFFER_COUNTS) {
                if (copiers == 1 && buffers != 4) continue;
                Shape shape;
                shape.buffers = buffers;
                shape.streams = streams;
                shape.copiers = copiers;
                shape.copying = copying;
                survey_sizes(shape, direction, found, [&](const Shape &tried) {
                    return copied_rate(ring, tried, direction, device, region, SURVEY, SAMPLES);
                });
            }
    return found.shape;
}

static void measure_copied(const Ring &ring, const Shape &shape, Direction direction, char *device, Region &region,
                           bool huge, Figures &figures) {
    double rate =
        median_of_three([&] { return copied_rate(ring, shape, direction, device, region, BYTES, EVERY_WORD); });
    note("%s, %s, %s: %.1f GB/s", DIRECTION_NAMES[direction], shape.text().c_str(), pages_name(huge), rate);
    figures.copied[direction].take(rate, shape, pages_name(huge));
}

// One cudaMemcpy of everything.
static double plain_copy_rate(Direction direction, char *device, Content &content, size_t bytes, const char *what) {
    uint64_t seed = prepare(direction, device, bytes);
    double begun = now_s();
    if (direction == TO_HOST)
        RT(cudaMemcpy(content.memory, device, bytes, cudaMemcpyDeviceToHost));
    else
        RT(cudaMemcpy(device, content.memory, bytes, cudaMemcpyHostToDevice));
    RT(cudaDeviceSynchronize()); // for the device the last piece may still be on its way
    double rate = gigabytes_per_s(bytes, now_s() - begun);
    check_copied(direction, device, content, bytes, seed, SAMPLES, what);
    note("%s, one cudaMemcpy, %s: %.1f GB/s", DIRECTION_NAMES[direction], what, rate);
    return rate;
}

// A virtual machine may have to ask its host for memory that it uses for the first time. Done once, this is in no later
// figure.
static void use_memory_once() {
    Region region(BYTES, true);
    double seconds = region.touch_s();
    note("memory perhaps never used before: first touch by 8 threads %.1f GB/s", gigabytes_per_s(BYTES, seconds));
}

// The ring with pageable memory that has been touched before, of small pages and then of huge ones.
static void measure_pageable(const Ring &ring, char *device, Figures &figures) {
    Shape best[2];
    for (bool huge : {false, true}) {
        Region region(BYTES, huge);
        double touch_s = region.touch_s();
        note("%s: first touch by 8 threads %.1f GB/s", pages_name(huge), gigabytes_per_s(BYTES, touch_s));
        note_huge_pages(pages_name(huge));
        for (Direction direction : DIRECTIONS) {
            if (!huge)
                best[direction] = survey_copied(ring, direction, device, region, figures.raw[direction].shape.streams);
            measure_copied(ring, best[direction], direction, device, region, huge, figures);
        }
        for (Direction direction : DIRECTIONS)
            if (!huge) figures.pageable[direction] = plain_copy_rate(direction, device, region, BYTES, "pageable");
    }
    for (bool huge : {false, true}) {
        Region fresh(BYTES, huge);
        double rate = copied_rate(ring, best[TO_HOST], TO_HOST, device, fresh, BYTES, SAMPLES);
        note("to host, %s, never touched before, %s: %.1f GB/s", best[TO_HOST].text().c_str(), pages_name(huge), rate);
    }
}

// Both directions at once: half of the device's memory goes out while the other half comes in, each through its ring.
static void measure_both(const Ring (&rings)[2], char *device, unsigned copiers, Figures &figures) {
    constexpr size_t HALF = BYTES / 2;
    const Best *best = copiers == 0 ? figures.raw : figures.copied;
    Shape shapes[2] = {best[TO_HOST].shape, best[TO_DEVICE].shape};
    Region regions[2] = {{HALF, false}, {HALF, false}};
    char *halves[2] = {device, device + HALF};
    uint64_t seed = prepare(TO_HOST, halves[TO_HOST], HALF), ring_seed = ++last_seed;
    prepare(TO_DEVICE, halves[TO_DEVICE], HALF);
    if (copiers == 0) {
        fill_host(rings[TO_DEVICE].buffers, MOST_BUFFER_BYTES, ring_seed);
    } else {
        regions[TO_HOST].touch_s();
        regions[TO_DEVICE].seed = ++last_seed;
        fill_host(regions[TO_DEVICE].memory, HALF, regions[TO_DEVICE].seed);
    }
    double rates[2];
    std::vector<std::thread> threads;
    for (Direction direction : DIRECTIONS) {
        shapes[direction].copiers = copiers;
        threads.emplace_back([&, direction] {
            Passage passage(rings[direction], shapes[direction], direction, halves[direction],
                            regions[direction].memory, HALF);
            rates[direction] = gigabytes_per_s(HALF, passage.run());
        });
    }
    for (std::thread &thread : threads) thread.join();
    for (Direction direction : DIRECTIONS) {
        std::string what = "both at once, " + shapes[direction].text();
        if (copiers == 0)
            check_raw(direction, halves[direction], rings[direction], shapes[direction], HALF, seed, ring_seed);
        else
            check_copied(direction, halves[direction], regions[direction], HALF, seed, SAMPLES, what);
        note("%s, %s: %.1f GB/s", what.c_str(), DIRECTION_NAMES[direction], rates[direction]);
    }
    double (&kept)[2] = copiers == 0 ? figures.both_raw : figures.both_copied;
    if (rates[0] + rates[1] > kept[0] + kept[1]) std::copy(rates, rates + 2, kept);
}

// Whether memory was pinned. A system that forbids it loses these figures only.
static bool is_pinned(cudaError_t error, const char *call) {
    if (error == cudaSuccess) return true;
    cudaGetLastError(); // else the next check of a launch would find it
    note("%s is left out: %s", call, cudaGetErrorString(error));
    return false;
}

// One big pinned buffer, and what it costs to pin it.
static void measure_pinned(char *device, Figures &figures) {
    Content content = {nullptr};
    double begun = now_s();
    if (!is_pinned(cudaMallocHost(&content.memory, BYTES), "cudaMallocHost")) return;
    double pinning_s = now_s() - begun;
    for (Direction direction : DIRECTIONS)
        figures.pinned[direction] = plain_copy_rate(direction, device, content, BYTES, "pinned");
    begun = now_s();
    RT(cudaFreeHost(content.memory));
    note("cudaMallocHost: %.0f ms a GiB; cudaFreeHost: %.0f ms a GiB", pinning_s * 1e3 * GIB / BYTES,
         (now_s() - begun) * 1e3 * GIB / BYTES);
}

static void measure_registering(char *device, bool huge) {
    Region region(REGISTERED, huge);
    double touch_s = region.touch_s();
    double begun = now_s();
    if (!is_pinned(cudaHostRegister(region.memory, region.bytes, cudaHostRegisterDefault), "cudaHostRegister")) return;
    double register_s = now_s() - begun;
    for (Direction direction : DIRECTIONS)
        plain_copy_rate(direction, device, region, REGISTERED,
                        huge ? "registered huge pages" : "registered small pages");
    begun = now_s();
    RT(cudaHostUnregister(region.memory));
    note("%s: cudaHostRegister %.0f ms a GiB, cudaHostUnregister %.0f ms a GiB, first touch before that %.0f ms a GiB",
         pages_name(huge), register_s * 1e3 * GIB / REGISTERED, (now_s() - begun) * 1e3 * GIB / REGISTERED,
         touch_s * 1e3 * GIB / REGISTERED);
}

// The driver's checkpoint of the same memory, twice, because the first may pay for what the second finds ready. False
// if the process can make no call of CUDA any more.
static bool measure_driver(char *device, Figures &figures) {
    if (driver().cuCheckpointProcessLock == nullptr) return true;
    for (int round = 0; round < 2; ++round) {
        uint64_t seed = prepare(TO_HOST, device, BYTES);
        auto promise = std::make_shared<std::promise<Cycle>>();
        std::future<Cycle> answer = promise->get_future();
        std::thread([promise] {
            promise->set_value(cycle(getpid(), [] { note("CHECKPOINTED: resident %zu MiB", resident_mib()); }));
        }).detach(); // it may never come back
        if (answer.wait_for(std::chrono::duration<double>(DRIVER_MAY_TAKE_S)) != std::future_status::ready) {
            note("the driver has not answered in %.0f s", DRIVER_MAY_TAKE_S);
            return false;
        }
        Cycle done = answer.get();
        done.print("the driver");
        if (!done.ok()) {
            note("state afterwards: %s", state_of(getpid()));
            return false;
        }
        check(wrong_words(device, BYTES, seed) == 0, "driver", "checkpoint and restore", TO_DEVICE);
        figures.driver[0] = std::max(figures.driver[0], gigabytes_per_s(BYTES, done.checkpoint.seconds));
        figures.driver[1] = std::max(figures.driver[1], gigabytes_per_s(BYTES, done.restore.seconds));
    }
    return true;
}

static int conclude(const Figures &figures) {
    const Best *raw = figures.raw, *copied = figures.copied;
    for (Direction direction : DIRECTIONS)
        note("best %s: raw %.1f GB/s (%s), copied %.1f GB/s (%s, %s)", DIRECTION_NAMES[direction], raw[direction].rate,
             raw[direction].shape.text().c_str(), copied[direction].rate, copied[direction].shape.text().c_str(),
             copied[direction].pages);
    note("all took %.1f s", now_s() - started_s);
    return result(
        "T8", correct && copied[TO_HOST].rate >= ENOUGH && copied[TO_DEVICE].rate >= ENOUGH,
        "to host / to device, GB/s: ring with copy %.1f / %.1f, raw ring %.1f / %.1f, driver %.1f / %.1f, cudaMemcpy "
        "pageable %.1f / %.1f, pinned %.1f / %.1f; at once: raw %.1f + %.1f, with copy %.1f + %.1f%s",
        copied[0].rate, copied[1].rate, raw[0].rate, raw[1].rate, figures.driver[0], figures.driver[1],
        figures.pageable[0], figures.pageable[1], figures.pinned[0], figures.pinned[1], figures.both_raw[0],
        figures.both_raw[1], figures.both_copied[0], figures.both_copied[1], correct ? "" : "; WRONG data");
}

int main() {
    char *device;
    RT(cudaMalloc(&device, BYTES));
    use_memory_once();
    Figures figures;
    {
        double begun = now_s();
        Ring rings[2];
        note("two rings of %zu MiB pinned in %.0f ms; %u processors", MOST_BUFFER_BYTES / MIB, (now_s() - begun) * 1e3,
             std::thread::hardware_concurrency());
        measure_raw(rings[0], device, figures);
        measure_pageable(rings[0], device, figures);
        for (unsigned copiers : {0, 4, 6}) measure_both(rings, device, copiers, figures);
    }
    measure_pinned(device, figures);
    for (bool huge : {false, true}) measure_registering(device, huge);
    bool usable = measure_driver(device, figures);
    int status = conclude(figures);
    if (!usable) _exit(status); // leaving in order would call the driver, which may never answer
    RT(cudaFree(device));
    return status;
}
