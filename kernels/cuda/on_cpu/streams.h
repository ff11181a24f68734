// Streams and events. Streams run beside one another and beside the caller, as on a GPU.
#pragma once

#include <stdint.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace on_cpu {

// A stream: what is to be done, in order, by a thread of its own.
class Stream {
  public:
    Stream() : thread([this] { work(); }) {}
    ~Stream() {
        push(nullptr);
        thread.join();
    }
    void push(std::function<void()> work) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(std::move(work));
        ++count_pushed;
        changed.notify_all();
    }
    // How often something was pushed so far.
    uint64_t pushed() {
        std::lock_guard<std::mutex> lock(mutex);
        return count_pushed;
    }
    // Whether as much as that has been done.
    bool has_done(uint64_t count) {
        std::lock_guard<std::mutex> lock(mutex);
        return count_done >= count;
    }
    void wait_until_done(uint64_t count) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return count_done >= count; });
    }
    void wait() { wait_until_done(pushed()); }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    uint64_t count_pushed = 0, count_done = 0;
    std::thread thread;

    void work() {
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return !queue.empty(); });
            auto work = std::move(queue.front());
            queue.pop_front();
            lock.unlock();
            if (!work) return;
            work();
            work = nullptr; // with what it holds, before anyone is told that it is done
            lock.lock();
            ++count_done;
            changed.notify_all();
        }
    }
};

// An event: how often it was recorded, and how many of these times have come. What is still to come holds on to it.
class Event {
  public:
    // What a stream is to do for the time of this call.
    std::function<void()> record() {
        std::lock_guard<std::mutex> lock(times->mutex);
        return [times = times, time = ++times->recorded] { times->come_to(time); };
    }
    // What a stream is to do to wait for the last time that it was recorded.
    std::function<void()> awaited() {
        return [times = times, time = last()] { times->wait(time); };
    }
    bool has_come() {
        std::lock_guard<std::mutex> lock(times->mutex);
        return times->come >= times->recorded;
    }
    void wait() { times->wait(last()); }
    bool was_recorded() { return last() > 0; }

    float milliseconds_since(Event &earlier) { return std::chrono::duration<float, std::milli>(when() - earlier.when()).count(); }

  private:
    using Time = std::chrono::steady_clock::time_point;

    struct Times {
        std::mutex mutex;
        std::condition_variable changed;
        uint64_t recorded = 0, come = 0;
        Time when;

        void come_to(uint64_t time) {
            std::lock_guard<std::mutex> lock(mutex);
            come = time;
            when = std::chrono::steady_clock::now();
            changed.notify_all();
        }
        void wait(uint64_t time) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [&] { return come >= time; });
        }
    };

    std::shared_ptr<Times> times = std::make_shared<Times>();

    uint64_t last() {
        std::lock_guard<std::mutex> lock(times->mutex);
        return times->recorded;
    }
    Time when() {
        std::lock_guard<std::mutex> lock(times->mutex);
        return times->when;
    }
};

} // namespace on_cpu
