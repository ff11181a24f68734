// Parts of larger pieces of physical memory. Small parts share a piece, as the driver's do; a large one has a piece of its own.
// Pieces that nothing uses any more are given back to the device, or kept up to some size.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>

#include "physical.h"

namespace test_double {

// Where an allocation's bytes are.
struct Part {
    uint64_t address = 0; // none
    std::shared_ptr<Physical> physical;
    size_t offset = 0;
};

class Heap {
  public:
    Heap(int device, size_t piece_bytes) : device(device), piece_bytes(piece_bytes) {}
    ~Heap();
    Heap(const Heap &) = delete;

    // Never zeros. No address where the device has not as much left.
    Part allocate(size_t bytes);
    void release(uint64_t address);
    // Gives unused pieces back until no more than this is reserved, or none is unused.
    void trim(size_t keep);

    size_t reserved = 0, used = 0, reserved_high = 0, used_high = 0;

  private:
    struct Piece {
        std::shared_ptr<Physical> physical;
        std::map<size_t, size_t> parts; // length by offset
    };
    const int device;
    const size_t piece_bytes;
    std::map<uint64_t, Piece> pieces; // by address

    std::map<uint64_t, Piece>::iterator piece_with_room(size_t bytes, size_t &offset);
    std::map<uint64_t, Piece>::iterator new_piece(size_t bytes);
};

} // namespace test_double
