// Physical memory: of a device, or managed. Each piece is a file in memory, so that another process can map it too, and lies
// wherever it is mapped; it lives as long as someone holds it. For a checkpoint of the process all of it is moved to ordinary
// memory of the host, the addresses stay reserved, and the files are closed.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>

namespace test_double {

// In place of a device's number: managed memory, which takes no device's.
constexpr int NO_DEVICE = -1;
constexpr size_t GRANULARITY = 2 << 20;

constexpr size_t round_up(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

class Physical : public std::enable_shared_from_this<Physical> {
  public:
    // Null where the device has not as much left.
    static std::shared_ptr<Physical> create(size_t bytes, int device);
    // The memory that a descriptor is of, of this process or another; null if it is not of the double's.
    static std::shared_ptr<Physical> of_descriptor(int descriptor);
    ~Physical();
    Physical(const Physical &) = delete;

    void map(uint64_t address, size_t offset, size_t bytes, int protection);
    void protect(uint64_t address, int protection);
    // The address stays reserved.
    void unmap(uint64_t address);
    void fill(unsigned char byte);

    const size_t bytes;
    const int device;
        int descriptor;
    // Whether another process may have all of it.
    bool is_shared = false;
    // Made by a process that has it no more: it cannot be exported.
    bool is_imported = false;

    // For a checkpoint: everything that exists goes to the host, and comes back, or not: then false.
    static void evict_all();
    static bool bring_back_all();
    static bool any_is(bool (*so)(const Physical &));
    static size_t bytes_of_all();

  private:
    struct Mapping {
        size_t offset, bytes;
        int protection;
    };
    std::map<uint64_t, Mapping> mappings; // by address
    void *saved = nullptr;

    Physical(size_t bytes, int device, int descriptor);
    void place(uint64_t address, const Mapping &mapping);
    void evict();
    void bring_back();
};

} // namespace test_double
