#include "devices.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "call.h"
#include "grid.h"

namespace test_double {

namespace {

size_t number_in(const char *variable, size_t otherwise) {
    const char *text = getenv(variable);
    return text == nullptr ? otherwise : strtoull(text, nullptr, 0);
}

// What there is now.
std::vector<Device> machine() {
    std::vector<Device> found;
    const char *path = getenv("CKPT_DOUBLE_MACHINE");
    if (path == nullptr) {
        for (size_t number = 0; number < number_in("CKPT_DOUBLE_DEVICES", 1); ++number)
            found.push_back({number_in("CKPT_DOUBLE_MEMORY", size_t(4) << 30), 0, static_cast<unsigned char>(number)});
        return found;
    }
    std::ifstream file(path);
    for (unsigned number; file >> number;) {
        found.push_back({0, 0, static_cast<unsigned char>(number)});
        file >> found.back().total;
    }
    return found;
}

CUuuid uuid_of_number(unsigned char number) {
    CUuuid uuid = {};
    memcpy(uuid.bytes, "ckpt-double-dev", 15);
    uuid.bytes[15] = char(number);
    return uuid;
}

bool same(const CUuuid &one, const CUuuid &other) { return memcmp(one.bytes, other.bytes, sizeof one.bytes) == 0; }

} // namespace

std::vector<Device> &devices() {
    static auto *devices = new std::vector<Device>(machine());
    return *devices;
}

CUresult move_to_machine(const CUcheckpointGpuPair *pairs, unsigned count) {
    Locked locked;
    std::vector<Device> there = machine(), moved = devices();
    if (count != 0 && count != moved.size()) return CUDA_ERROR_INVALID_VALUE;
    for (Device &device : moved) {
        CUuuid wanted = uuid_of_number(device.number);
        bool is_named = count == 0;
        for (unsigned at = 0; at < count && !is_named; ++at)
            if (same(pairs[at].oldUuid, wanted)) wanted = pairs[at].newUuid, is_named = true;
        if (!is_named) return CUDA_ERROR_INVALID_VALUE;
        auto is_wanted = [&](const Device &one) { return same(uuid_of_number(one.number), wanted); };
        auto found = std::find_if(there.begin(), there.end(), is_wanted);
        if (found == there.end()) return CUDA_ERROR_INVALID_DEVICE;
        device = {found->total, device.used, found->number};
        there.erase(found);
    }
    // A test may have said that there is less: it stays so where nothing else is known.
    if (getenv("CKPT_DOUBLE_MACHINE") != nullptr) devices() = moved;
    return CUDA_SUCCESS;
}

bool all_is_taken() {
    const char *path = getenv("CKPT_DOUBLE_TAKEN");
    return path != nullptr && access(path, F_OK) == 0;
}

// Opens the device that is at a path, by a name as the driver's devices have. Whoever may make no nodes has the usual name.
static int open_as_drivers(const char *path) {
    struct stat there;
    if (stat(path, &there) != 0) return -1;
    std::string name = "/dev/nvidia-double-" + std::to_string(getpid());
    if (mknod(name.c_str(), S_IFCHR | 0600, there.st_rdev) != 0) return open(path, O_RDWR | O_CLOEXEC);
    int opened = open(name.c_str(), O_RDWR | O_CLOEXEC);
    unlink(name.c_str());
    return opened;
}

// The driver has devices open, which nobody else can capture: here it is any that there is.
static int descriptor = -1;

// And it has them mapped, always at the same place: here it is one that anybody may map.
constexpr size_t REGISTERS_BYTES = 4 * 4096;
static void *registers = nullptr;

static bool map_registers() {
    int zero = open_as_drivers("/dev/zero");
    int where = registers == nullptr ? 0 : MAP_FIXED_NOREPLACE;
    void *mapped = mmap(registers, REGISTERS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | where, zero, 0);
    close(zero);
    if (mapped != MAP_FAILED) registers = mapped;
    return mapped != MAP_FAILED;
}

bool open_device() {
    for (const char *path : {"/dev/fuse", "/dev/loop-control", "/dev/kvm", "/dev/net/tun", "/dev/hpet"})
        if (descriptor < 0) descriptor = open_as_drivers(path);
    return map_registers();
}

void close_device() {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
    munmap(registers, REGISTERS_BYTES);
}

bool is_device(int ordinal) { return ordinal >= 0 && size_t(ordinal) < devices().size(); }

} // namespace test_double

using namespace test_double;

CUresult cuInit(unsigned flags) {
    ENTER(NOTHING);
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (devices().empty()) return CUDA_ERROR_NO_DEVICE;
    if (!is_initialised()) open_device();
    set_initialised();
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(NOTHING);
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(INITIALISED);
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = int(devices().size());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(INITIALISED);
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER(INITIALISED);
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    static const char *model = getenv("CKPT_DOUBLE_MODEL");
    snprintf(name, size_t(length), "%s", model == nullptr ? "CUDA test double" : model);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER(INITIALISED);
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *uuid = uuid_of_number(devices()[size_t(device)].number);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(INITIALISED);
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Locked locked;
    *bytes = devices()[size_t(device)].total;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
    ENTER(INITIALISED);
    if (id == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, size_t(length), "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER(INITIALISED);
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device) || !is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(INITIALISED);
    if (value == nullptr || attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: *value = on_cpu::BLOCK_THREADS_MAX; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 0x7fffffff; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2 * on_cpu::BLOCK_THREADS_MAX; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = on_cpu::WARP; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 1000000; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = device + 1; break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: *value = 0x7fffffff; break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: *value = 512; break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: *value = 64 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 64 << 10; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 4 << 20; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: // kernels on the CPU have one dimension
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    default: *value = 0; // what the CPU does not do in place of a GPU
    }
    return CUDA_SUCCESS;
}
