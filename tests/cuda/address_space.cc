#include "address_space.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "call.h"
#include "physical.h"

namespace test_double {

namespace {

constexpr uint64_t BEGIN = 0x300000000000, END = 0x500000000000;
constexpr int RESERVED = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::map<uint64_t, size_t> &reservations() {
    static auto *reservations = new std::map<uint64_t, size_t>;
    return *reservations;
}

bool take(uint64_t address, size_t bytes) {
    void *place = reinterpret_cast<void *>(address);
    void *got = mmap(place, bytes, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) return false;
    reservations()[address] = bytes;
    return true;
}

bool is_free(uint64_t address, size_t bytes) {
    auto after = reservations().lower_bound(address);
    if (after != reservations().end() && after->first < address + bytes) return false;
    if (after == reservations().begin()) return true;
    auto before = std::prev(after);
    return before->first + before->second <= address;
}

} // namespace

uint64_t reserve_addresses(size_t bytes, size_t alignment, uint64_t wanted) {
    Locked locked;
    bool is_possible = wanted != 0 && wanted % alignment == 0 && wanted >= BEGIN && wanted + bytes <= END;
    if (is_possible && is_free(wanted, bytes) && take(wanted, bytes)) return wanted;
    auto next = reservations().begin();
    for (uint64_t address = round_up(BEGIN, alignment); address + bytes <= END;) {
        if (next != reservations().end() && next->first < address + bytes) {
            address = std::max<uint64_t>(address, round_up(next->first + next->second, alignment));
            ++next;
        } else if (take(address, bytes)) {
            return address;
        } else { // the program's own mapping lies there
            address += round_up(GRANULARITY, alignment);
        }
    }
    return 0;
}

void free_addresses(uint64_t address) {
    Locked locked;
    auto found = reservations().find(address);
    munmap(reinterpret_cast<void *>(address), found->second);
    reservations().erase(found);
}

void hold_addresses(uint64_t address, size_t bytes) {
    void *place = reinterpret_cast<void *>(address);
    if (mmap(place, bytes, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == MAP_FAILED) {
        perror("reserving addresses of device memory");
        abort();
    }
}

size_t reserved_at(uint64_t address) {
    Locked locked;
    auto found = reservations().find(address);
    return found == reservations().end() ? 0 : found->second;
}

uint64_t reservation_around(uint64_t address, size_t bytes) {
    Locked locked;
    auto after = reservations().upper_bound(address);
    if (after == reservations().begin()) return 0;
    auto [start, length] = *std::prev(after);
    return address - start + bytes <= length ? start : 0;
}

} // namespace test_double
