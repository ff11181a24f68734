// The addresses of device memory: a part of the address space far from the heap, the same in every process and every run as
// long as the program asks for the same. What is reserved there and not mapped faults.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace test_double {

// Reserves the lowest free addresses, or those wanted where they are free (0: no wish). 0 if there are none. Free are those where
// nothing is mapped, of the program's own either, which may have put memory where memory of a device was.
uint64_t reserve_addresses(size_t bytes, size_t alignment, uint64_t wanted = 0);
// What lies there now is gone, and the addresses are free.
void free_addresses(uint64_t address);
// What lies there now is gone, and the addresses stay reserved.
void hold_addresses(uint64_t address, size_t bytes);
// How many bytes are reserved from this address on; 0 if no reservation begins here.
size_t reserved_at(uint64_t address);
// The reservation that all these bytes lie in, by its first address; 0 if there is none.
uint64_t reservation_around(uint64_t address, size_t bytes);

} // namespace test_double
