#include "controls.h"

#include <algorithm>

#include "call.h"
#include "devices.h"
#include "traffic.h"

using namespace test_double;

uint64_t double_calls(const char *name) { return calls_of(name); }
uint64_t double_bytes_host_to_device(void) { return traffic().host_to_device; }
uint64_t double_bytes_device_to_host(void) { return traffic().device_to_host; }
uint64_t double_bytes_device_to_device(void) { return traffic().device_to_device; }

void double_set_memory(int device, size_t bytes) {
    Locked locked;
    devices().at(size_t(device)).total = bytes;
}

size_t double_memory_used(int device) {
    Locked locked;
    return devices().at(size_t(device)).used;
}
