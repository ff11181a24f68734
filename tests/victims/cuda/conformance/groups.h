// The groups of calls that the conformance program makes, each of which says what it is answered.
#pragma once

#include "../trace.h"

#include <string>
#include <vector>

constexpr size_t MIB = 1 << 20;

// What all groups use: the first device, its primary context, and the kernels.
extern CUdevice device;
extern CUcontext context;
extern std::string ptx_path, ptx;

void initialisation();
void devices();
void contexts();
void memory();
void copies_and_fills();
void streams();
void host_memory();
void virtual_memory();
void pointers();
void arrays();
void pools();
void entry_points();
void checkpoints();
void modules();
void graphs();
void managed();
void managed_pools();
void managed_variables();
void other_processes();

// What the other process does: it has a handle of legacy IPC, and a descriptor.
int other_process(const char *handle_in_hex, int descriptor);

// Runs a kernel in eight blocks.
void launch(CUfunction function, unsigned threads, std::vector<void *> parameters, CUstream stream = nullptr);
