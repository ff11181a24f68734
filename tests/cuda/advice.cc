#include "advice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "allocations.h"
#include "call.h"

namespace test_double {

namespace {

constexpr uint64_t PAGE = 4096;

// By the number of the page.
std::map<uint64_t, Advice> &all() {
    static auto *all = new std::map<uint64_t, Advice>;
    return *all;
}

uint64_t first_page(uint64_t address) { return address / PAGE; }
uint64_t end_page(uint64_t address, size_t bytes) { return (address + bytes + PAGE - 1) / PAGE; }

CUmemLocation both(CUmemLocation one, CUmemLocation other) {
    return one.type == other.type && one.id == other.id ? one : Advice().preferred;
}

Advice both(const Advice &one, const Advice &other) {
    Advice found;
    found.is_read_mostly = one.is_read_mostly && other.is_read_mostly;
    found.preferred = both(one.preferred, other.preferred);
    found.prefetched = both(one.prefetched, other.prefetched);
    std::set_intersection(one.accessed_by.begin(), one.accessed_by.end(), other.accessed_by.begin(), other.accessed_by.end(),
                          std::inserter(found.accessed_by, found.accessed_by.end()));
    return found;
}

} // namespace

void advise_pages(uint64_t address, size_t bytes, const std::function<void(Advice &)> &change) {
    Locked locked;
    for (uint64_t page = first_page(address); page < end_page(address, bytes); ++page) change(all()[page]);
}

Advice advice_of(uint64_t address, size_t bytes) {
    Locked locked;
    std::optional<Advice> found;
    for (uint64_t page = first_page(address); page < end_page(address, bytes); ++page) {
        auto known = all().find(page);
        if (known == all().end()) return {};
        found = found ? both(*found, known->second) : known->second;
    }
    return found.value_or(Advice());
}

void forget_advice(uint64_t address, size_t bytes) {
    Locked locked;
    auto from = all().lower_bound(first_page(address)), to = all().lower_bound(end_page(address, bytes));
    while (from != to) from = is_any_allocated(from->first * PAGE, PAGE) ? std::next(from) : all().erase(from);
}

} // namespace test_double
