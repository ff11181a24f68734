// A phase of a program that T6 watches: allocate, say how much memory the driver has lost, free, and say it again. The
// script compares these lines with the reports of the hooks, which are asked for at the same moments.
#pragma once

#include "experiment.h"

#include <functional>

// What the driver's granularity alone may make of a difference: 2 MiB to an allocation, a chunk of 32 MiB to a pool.
constexpr size_t SLAB = 2 * MIB;
constexpr size_t POOL_CHUNK = 32 * MIB;
constexpr size_t FIXED_SLACK = 4 * MIB;

constexpr size_t slack_of(size_t allocations) { return FIXED_SLACK + allocations * SLAB; }

// Thrown by a phase: what failed, by the name of the error. The other phases still run.
struct Failed {
    std::string error;
};

// Asks the hooks for a report, where they are there.
inline void report(const std::string &what) {
    using Report = void (*)(const char *);
    static const Report found = reinterpret_cast<Report>(dlsym(RTLD_DEFAULT, "t6_report"));
    if (found != nullptr) found(what.c_str());
}

class Phases {
  public:
    using Allocate = std::function<size_t()>; // Returns how many bytes it asked for.
    using Release = std::function<void()>;

    // `settle` waits for the device, `free_bytes` is the driver's count.
    Phases(std::function<void()> settle, std::function<size_t()> free_bytes) : settle(settle), free_bytes(free_bytes) {}

    // Twice: what the first time leaves behind (code loaded, pools made) is no allocation of the program, and is
    // recorded as overhead; the second time is compared. `kind` is how the hooks must class it, `slack` what may
    // differ.
    void run(const std::string &name, const char *kind, size_t slack, Allocate allocate, Release release) {
        try {
            size_t begun = settled();
            report(name + ".begun");
            allocate();
            release();
            size_t before = settled();
            report(name + ".before");
            overhead(name, begun, before);

            kept = before < begun ? begun - before : 0;
            size_t asked = allocate();
            compare(name, ".during", before, slack, kind, asked);
            release();
            compare(name, ".freed", before, slack, "none", 0);
        } catch (const Failed &failed) {
            printf("broken %s %s\n", name.c_str(), failed.error.c_str());
            fflush(stdout);
        }
    }

    // Memory that no entry point for allocation takes: recorded, not compared.
    void overhead(const std::string &name, size_t before, size_t after) {
        printf("overhead %s taken %lld\n", name.c_str(), difference(before, after));
        fflush(stdout);
    }

    size_t settled() {
        settle();
        return free_bytes();
    }

  private:
    static long long difference(size_t before, size_t now) {
        return static_cast<long long>(before) - static_cast<long long>(now);
    }

    void compare(const std::string &name, const char *when, size_t before, size_t slack, const char *kind,
                 size_t asked) {
        long long taken = difference(before, settled());
        report(name + when);
        printf("phase %s from .before to %s taken %lld slack %zu kept %zu kind %s asked %zu\n", name.c_str(), when,
               taken, slack, kept, kind, asked);
        fflush(stdout);
    }

    size_t kept = 0; // By the driver, from the first time: the second may take its memory from there.

    std::function<void()> settle;
    std::function<size_t()> free_bytes;
};
