// The devices: how many there are, and how much memory each has, is said by CKPT_DOUBLE_DEVICES and CKPT_DOUBLE_MEMORY; or by a file
// that CKPT_DOUBLE_MACHINE names, with a line for each: its number, which is in its UUID, and its bytes. That is read again when a
// process is restored, which may be on another machine.
#pragma once

#include <cuda.h>

#include <stddef.h>

#include <vector>

namespace test_double {

struct Device {
    size_t total, used;
    unsigned char number; // that is in its UUID

    // Other programs may have taken more than this one leaves.
    size_t left() const { return used < total ? total - used : 0; }
};

std::vector<Device> &devices();

bool is_device(int ordinal);

// A process that has begun to use the driver has a device open and mapped, except while it is checkpointed. False if something else
// is mapped there.
bool open_device();
void close_device();

// The process is on the machine that there is now: each of its devices becomes the one that `pairs` names for it, or the same. Those
// that a device must not be, or is not, are an error, and nothing has changed.
CUresult move_to_machine(const CUcheckpointGpuPair *pairs, unsigned count);
// Whether other programs have all memory of all devices: as long as there is the file that CKPT_DOUBLE_TAKEN names.
bool all_is_taken();

} // namespace test_double
