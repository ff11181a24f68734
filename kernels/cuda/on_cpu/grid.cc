#include "grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "language.h"
#include "sanitizers.h"

namespace on_cpu {

thread_local Index thread_index, block_index, block_size, grid_size;

namespace {

// Where threads come together. What they vote is collected twice by turns: when the last one comes, the votes of the time
// before have been read by all.
struct Meeting {
    uint32_t expected = 0;
    std::atomic<uint32_t> arrived{0}, times{0};
    std::atomic<uint32_t> votes[2] = {};
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    FiberOfSanitizer sanitizer;
    std::atomic<bool> has_run{false};
    bool has_ended;
    // It sleeps as long as this meeting has been held so many times.
    const Meeting *awaits;
    uint32_t times;
};

constexpr size_t STACK_BYTES = 256 << 10;

// What a thread of the CPU runs blocks with.
class Block {
  public:
    Block() : fibers(BLOCK_THREADS_MAX) {
        for (uint32_t number = 0; number < BLOCK_THREADS_MAX; ++number) {
            fibers[number].stack.reset(new char[STACK_BYTES]);
            fibers[number].sanitizer.create(fibers[number].stack.get(), STACK_BYTES);
        }
        main_sanitizer.is_current();
    }

    // What was written before a block begins is seen by its threads, and what these wrote once it has ended. So blocks on one
    // thread of the CPU are in order, because they share the memory of a block; those on different ones are not.
    void run(uint32_t number, uint32_t threads, const std::function<void()> &kernel) {
        this->kernel = &kernel;
        begun.store(true, std::memory_order_release);
        run_threads(number, threads);
        for (Fiber &fiber : fibers) (void)fiber.has_run.load(std::memory_order_acquire);
    }

    // The votes of all, once all have come.
    uint32_t meet(Meeting &meeting, uint32_t vote) {
        uint32_t times = meeting.times.load(std::memory_order_acquire), turn = times % 2;
        meeting.votes[turn].fetch_or(vote, std::memory_order_relaxed);
        if (meeting.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == meeting.expected) {
            meeting.arrived.store(0, std::memory_order_relaxed);
            meeting.votes[1 - turn].store(0, std::memory_order_relaxed);
            meeting.times.store(times + 1, std::memory_order_release);
        } else {
            sleep(meeting, times);
            (void)meeting.times.load(std::memory_order_acquire);
        }
        return meeting.votes[turn].load(std::memory_order_relaxed);
    }

    Meeting all, warps[BLOCK_THREADS_MAX / WARP];

  private:
    std::vector<Fiber> fibers;
    ucontext_t main;
    FiberOfSanitizer main_sanitizer;
    const std::function<void()> *kernel;
    std::atomic<bool> begun{false};

    NOT_WATCHED void run_threads(uint32_t number, uint32_t threads) {
        block_index.x = number;
        all.expected = threads;
        for (uint32_t number = 0; number < threads; ++number) begin(number, threads);
        for (uint32_t running = threads; running > 0;) {
            bool has_moved = false;
            for (uint32_t number = 0; number < threads; ++number) {
                Fiber &fiber = fibers[number];
                if (fiber.has_ended || is_asleep(fiber)) continue;
                has_moved = true;
                enter(number);
                running -= fiber.has_ended;
            }
            if (!has_moved) {
                fprintf(stderr, "a block's threads wait for each other for ever: not all come to the same barrier\n");
                abort();
            }
        }
    }

    NOT_WATCHED void begin(uint32_t number, uint32_t threads) {
        Fiber &fiber = fibers[number];
        fiber.has_ended = false;
        fiber.awaits = nullptr;
        warps[number / WARP].expected = threads - number / WARP * WARP < WARP ? threads % WARP : WARP;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Block::fiber_main), 2, uint32_t(uintptr_t(this)),
                    uint32_t(uintptr_t(this) >> 32));
    }

    NOT_WATCHED static void fiber_main(uint32_t low, uint32_t high) {
        Block *block = reinterpret_cast<Block *>(uintptr_t(high) << 32 | low);
        block->main_sanitizer.arrived();
        Fiber &fiber = block->fibers[thread_index.x];
        block->run_kernel(fiber);
        fiber.has_ended = true;
        block->leave(fiber);
    }

    void run_kernel(Fiber &fiber) {
        (void)begun.load(std::memory_order_acquire);
        (*kernel)();
        fiber.has_run.store(true, std::memory_order_release);
    }

    NOT_WATCHED static bool is_asleep(const Fiber &fiber) {
        return fiber.awaits != nullptr && fiber.awaits->times.load(std::memory_order_relaxed) == fiber.times;
    }

    NOT_WATCHED void enter(uint32_t number) {
        thread_index.x = number;
        fibers[number].awaits = nullptr;
        fibers[number].sanitizer.leaving_for();
        swapcontext(&main, &fibers[number].context);
        fibers[number].sanitizer.arrived();
    }

    NOT_WATCHED void sleep(const Meeting &meeting, uint32_t times) {
        Fiber &fiber = fibers[thread_index.x];
        fiber.awaits = &meeting;
        fiber.times = times;
        leave(fiber);
    }

    NOT_WATCHED void leave(Fiber &fiber) {
        main_sanitizer.leaving_for();
        swapcontext(&fiber.context, &main);
        main_sanitizer.arrived();
    }
};

thread_local std::unique_ptr<Block> block;

// The threads that run blocks. One kernel runs at a time.
class Workers {
  public:
    Workers() {
        for (auto &thread : threads) thread = std::thread([this] { work(); });
    }

    void run(uint32_t blocks, uint32_t threads, const std::function<void()> &kernel) {
        std::lock_guard<std::mutex> one_kernel(kernels);
        std::unique_lock<std::mutex> lock(mutex);
        this->kernel = &kernel;
        this->blocks = blocks;
        this->block_threads = threads;
        next = 0;
        busy = COUNT;
        ++round;
        begun.notify_all();
        ended.wait(lock, [this] { return busy == 0; });
    }

  private:
    static constexpr uint32_t COUNT = 2;
    std::thread threads[COUNT];
    std::mutex kernels, mutex;
    std::condition_variable begun, ended;
    const std::function<void()> *kernel;
    uint32_t blocks, block_threads, busy = 0;
    uint64_t round = 0;
    std::atomic<uint32_t> next;

    NOT_WATCHED void set_sizes() {
        block_size.x = block_threads;
        grid_size.x = blocks;
    }

    void work() {
        block.reset(new Block);
        for (uint64_t seen = 0;;) {
            std::unique_lock<std::mutex> lock(mutex);
            begun.wait(lock, [&] { return round != seen; });
            seen = round;
            lock.unlock();
            set_sizes();
            // Relaxed: that one block happens to be taken after another must not look like order to a sanitizer.
            for (uint32_t number; (number = next.fetch_add(1, std::memory_order_relaxed)) < blocks;)
                block->run(number, block_threads, *kernel);
            lock.lock();
            if (--busy == 0) ended.notify_one();
        }
    }
};

} // namespace

uint32_t ballot(bool vote) {
    uint32_t lane = thread_index.x % WARP;
    return block->meet(block->warps[thread_index.x / WARP], uint32_t(vote) << lane);
}

bool any_of_block(bool vote) { return block->meet(block->all, vote) != 0; }

void run_grid(uint32_t blocks, uint32_t threads, const std::function<void()> &kernel) {
    static Workers *workers = new Workers; // for as long as the process lives
    workers->run(blocks, threads, kernel);
}

} // namespace on_cpu
