// Parts of larger pieces of physical memory. Small parts share a piece, as the driver's do; a large one has a piece of its own.
// Pieces that nothing uses any more are given back to the device, or kept up to some size.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <memory>

#include "physical.h"

namespace test_double {

// In the addresses of device memory, but further than anything is that takes the lowest.
constexpr uint64_t FAR_AWAY = 0x400000000000;

// Where an allocation's bytes are.
struct Part {
    uint64_t address = 0; // none
    std::shared_ptr<Physical> physical;
    size_t offset = 0;
};

// What becomes of the addresses of a piece that is given back.
enum class Freed {
    GONE,      // nothing is mapped there, and they may be used again
    ELSEWHERE, // nothing is mapped there, and what is allocated later is elsewhere
    KEPT,      // the piece stays mapped: it is not given back
    RESERVED,  // they are held without memory, and used again whatever the program has put there
};

class Heap {
  public:
    Heap(int device, size_t piece_bytes, Freed freed = Freed::GONE) : device(device), piece_bytes(piece_bytes), freed(freed) {}
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
        size_t touched = 0;             // the end of all parts that there ever were
    };
    const int device;
    const size_t piece_bytes;
    const Freed freed;
    std::map<uint64_t, Piece> pieces;   // by address
    std::map<uint64_t, size_t> held;    // lengths of pieces that are no more, by address: only where freed is RESERVED
    uint64_t next_elsewhere = FAR_AWAY; // where the next piece is to be: only where it is ELSEWHERE

    std::map<uint64_t, Piece>::iterator piece_with_room(size_t bytes, size_t &offset);
    std::map<uint64_t, Piece>::iterator new_piece(size_t bytes);
    uint64_t addresses_for(size_t bytes);
};

} // namespace test_double
