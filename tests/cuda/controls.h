// What a test may ask of the double, or tell it, beside what CUDA has. A program finds these by dlsym, where they are.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

// How often the entry point of this name was called, such as cuMemAlloc_v2.
uint64_t double_calls(const char *name);
// The bytes that were copied so far by calls and graphs, over each bus.
uint64_t double_bytes_host_to_device(void);
uint64_t double_bytes_device_to_host(void);
uint64_t double_bytes_device_to_device(void);
// How much memory a device has from now on, which may be less than is in use: then it has none left. Other programs may need it.
void double_set_memory(int device, size_t bytes);
// How much of a device's memory this process uses, also while it is locked.
size_t double_memory_used(int device);
}
