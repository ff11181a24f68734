// What was copied between host and devices so far, in bytes, for tests that say what may cross the bus.
#pragma once

#include <atomic>
#include <cstdint>

namespace test_double {

struct Traffic {
    std::atomic<uint64_t> host_to_device{0}, device_to_host{0}, device_to_device{0};

    void count(bool from_device, bool to_device, uint64_t bytes) {
        if (from_device && to_device) device_to_device += bytes;
        if (from_device && !to_device) device_to_host += bytes;
        if (!from_device && to_device) host_to_device += bytes;
    }
};

Traffic &traffic();

} // namespace test_double
