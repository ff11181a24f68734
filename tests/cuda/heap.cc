#include "heap.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "address_space.h"
#include "call.h"

namespace test_double {

namespace {

constexpr size_t ALIGNMENT = 512;
constexpr size_t NONE = SIZE_MAX;

// The first gap of this length between the parts, and not before an offset.
size_t gap(const std::map<size_t, size_t> &parts, size_t offset, size_t all, size_t bytes) {
    for (auto [start, length] : parts) {
        if (start < offset) continue;
        if (start - offset >= bytes) return offset;
        offset = start + length;
    }
    return all - offset >= bytes ? offset : NONE;
}

} // namespace

Heap::~Heap() {
    for (auto &[address, piece] : pieces) {
        piece.physical->unmap(address);
        free_addresses(address);
    }
}

std::map<uint64_t, Heap::Piece>::iterator Heap::piece_with_room(size_t bytes, size_t &offset) {
    for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
        bool is_unused = piece->second.parts.empty(), is_shared = piece->second.physical->bytes == piece_bytes;
        if (!is_unused && !(is_shared && bytes < piece_bytes)) continue;
        size_t from = freed == Freed::ELSEWHERE ? piece->second.touched : 0;
        offset = gap(piece->second.parts, from, piece->second.physical->bytes, bytes);
        if (offset != NONE) return piece;
    }
    return pieces.end();
}

uint64_t Heap::addresses_for(size_t bytes) {
    for (auto [address, length] : held)
        if (length == bytes) return held.erase(address), address;
    if (freed != Freed::ELSEWHERE) return reserve_addresses(bytes, GRANULARITY);
    uint64_t address = reserve_addresses(bytes, GRANULARITY, next_elsewhere);
    next_elsewhere = std::max(next_elsewhere, address + bytes);
    return address;
}

std::map<uint64_t, Heap::Piece>::iterator Heap::new_piece(size_t bytes) {
    auto physical = Physical::create(bytes, device);
    if (physical == nullptr) return pieces.end();
    uint64_t address = addresses_for(bytes);
    if (address == 0) return pieces.end();
    physical->map(address, 0, bytes, PROT_READ | PROT_WRITE);
    reserved += bytes;
    reserved_high = std::max(reserved_high, reserved);
    return pieces.emplace(address, Piece{physical, {}, 0}).first;
}

Part Heap::allocate(size_t bytes) {
    Locked locked;
    size_t rounded = round_up(bytes, ALIGNMENT), offset = 0;
    if (rounded < bytes) return {};
    auto piece = piece_with_room(rounded, offset);
    if (piece == pieces.end()) offset = 0, piece = new_piece(round_up(rounded, rounded < piece_bytes ? piece_bytes : GRANULARITY));
    if (piece == pieces.end()) return {};
    piece->second.parts[offset] = rounded;
    piece->second.touched = std::max(piece->second.touched, offset + rounded);
    used += rounded;
    used_high = std::max(used_high, used);
    uint64_t address = piece->first + offset;
    memset(reinterpret_cast<void *>(address), 0xa5, bytes); // nothing may rely on zeros
    return {address, piece->second.physical, offset};
}

void Heap::release(uint64_t address) {
    Locked locked;
    auto piece = std::prev(pieces.upper_bound(address));
    auto part = piece->second.parts.find(address - piece->first);
    used -= part->second;
    piece->second.parts.erase(part);
}

void Heap::trim(size_t keep) {
    Locked locked;
    if (freed == Freed::KEPT) return;
    for (auto piece = pieces.begin(); piece != pieces.end() && reserved > keep;) {
        auto next = std::next(piece);
        if (piece->second.parts.empty()) {
            reserved -= piece->second.physical->bytes;
            if (freed == Freed::RESERVED) held[piece->first] = piece->second.physical->bytes;
            piece->second.physical->unmap(piece->first);
            if (freed != Freed::RESERVED) free_addresses(piece->first);
            pieces.erase(piece);
        }
        piece = next;
    }
}

} // namespace test_double
