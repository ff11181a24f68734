#include "physical.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>

#include "address_space.h"
#include "call.h"
#include "devices.h"

namespace test_double {

namespace {

std::set<Physical *> &all() {
    static auto *all = new std::set<Physical *>;
    return *all;
}

// The name says whose the memory is, to a process that is given the descriptor.
const char NAME[] = "ckpt-double-";

int new_file(size_t bytes, int device) {
    int descriptor = memfd_create((NAME + std::to_string(device)).c_str(), MFD_CLOEXEC);
    if (descriptor >= 0 && ftruncate(descriptor, off_t(bytes)) != 0) close(descriptor), descriptor = -1;
    return descriptor;
}

[[noreturn]] void die(const char *what) {
    perror(what);
    abort();
}

void *ordinary_memory(size_t bytes) {
    void *place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return place == MAP_FAILED ? die("memory for the content of a device"), nullptr : place;
}

void read_all(int descriptor, char *to, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t got = pread(descriptor, to + at, bytes - at, off_t(at));
        if (got <= 0) die("reading memory of a device");
        at += size_t(got);
    }
}

void write_all(int descriptor, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        ssize_t put = pwrite(descriptor, from + at, bytes - at, off_t(at));
        if (put <= 0) die("writing memory of a device");
        at += size_t(put);
    }
}

} // namespace

Physical::Physical(size_t bytes, int device, int descriptor) : bytes(bytes), device(device), descriptor(descriptor) {
    all().insert(this);
    if (device != NO_DEVICE) devices()[size_t(device)].used += bytes;
}

std::shared_ptr<Physical> Physical::create(size_t bytes, int device) {
    Locked locked;
    bool counts = device != NO_DEVICE;
    if (counts && bytes > devices()[size_t(device)].left()) return nullptr;
    int descriptor = new_file(bytes, device);
    if (descriptor < 0) return nullptr;
    return std::shared_ptr<Physical>(new Physical(bytes, device, descriptor));
}

std::shared_ptr<Physical> Physical::of_descriptor(int descriptor) {
    struct stat file, other;
    char link[64], target[64] = {};
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    std::string prefix = std::string("/memfd:") + NAME;
    if (fstat(descriptor, &file) != 0 || readlink(link, target, sizeof target - 1) < 0) return nullptr;
    if (strncmp(target, prefix.c_str(), prefix.size()) != 0) return nullptr;
    Locked locked;
    for (Physical *physical : all())
        if (fstat(physical->descriptor, &other) == 0 && other.st_ino == file.st_ino && other.st_dev == file.st_dev)
            return physical->weak_from_this().lock();
    int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 3), device = atoi(target + prefix.size());
    if (own < 0) return nullptr;
    if (!is_device(device)) return close(own), nullptr;
    std::shared_ptr<Physical> imported(new Physical(size_t(file.st_size), device, own));
    imported->is_imported = true;
    return imported;
}

Physical::~Physical() {
    Locked locked;
    all().erase(this);
    while (!mappings.empty()) unmap(mappings.begin()->first);
    if (descriptor >= 0) close(descriptor);
    if (saved != nullptr) munmap(saved, bytes);
    if (device != NO_DEVICE && saved == nullptr) devices()[size_t(device)].used -= bytes;
}

void Physical::place(uint64_t address, const Mapping &mapping) {
    void *place = reinterpret_cast<void *>(address);
    if (mmap(place, mapping.bytes, mapping.protection, MAP_SHARED | MAP_FIXED, descriptor, off_t(mapping.offset)) == MAP_FAILED)
        die("mapping memory of a device");
}

void Physical::map(uint64_t address, size_t offset, size_t bytes, int protection) {
    Locked locked;
    Mapping mapping{offset, bytes, protection};
    place(address, mapping);
    mappings[address] = mapping;
}

void Physical::protect(uint64_t address, int protection) {
    Locked locked;
    Mapping &mapping = mappings.at(address);
    mapping.protection = protection;
    if (mprotect(reinterpret_cast<void *>(address), mapping.bytes, protection) != 0) die("protecting memory of a device");
}

void Physical::unmap(uint64_t address) {
    Locked locked;
    auto found = mappings.find(address);
    hold_addresses(address, found->second.bytes);
    mappings.erase(found);
}

void Physical::fill(unsigned char byte) {
    void *place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (place == MAP_FAILED) die("mapping memory of a device");
    memset(place, byte, bytes);
    munmap(place, bytes);
}

void Physical::evict() {
    saved = ordinary_memory(bytes);
    read_all(descriptor, static_cast<char *>(saved), bytes);
    for (auto &[address, mapping] : mappings) hold_addresses(address, mapping.bytes);
    close(descriptor);
    descriptor = -1;
    if (device != NO_DEVICE) devices()[size_t(device)].used -= bytes;
}

void Physical::bring_back() {
    descriptor = new_file(bytes, device);
    if (descriptor < 0) die("memory of a device");
    write_all(descriptor, static_cast<char *>(saved), bytes);
    for (auto &[address, mapping] : mappings) place(address, mapping);
    munmap(saved, bytes);
    saved = nullptr;
    if (device != NO_DEVICE) devices()[size_t(device)].used += bytes;
}

void Physical::evict_all() {
    Locked locked;
    for (Physical *physical : all()) physical->evict();
}

bool Physical::bring_back_all() {
    Locked locked;
    std::map<int, size_t> wanted;
    for (Physical *physical : all()) wanted[physical->device] += physical->bytes;
    for (auto [device, bytes] : wanted)
        if (device != NO_DEVICE && bytes > devices()[size_t(device)].left()) return false;
    for (Physical *physical : all()) physical->bring_back();
    return true;
}

bool Physical::any_is(bool (*so)(const Physical &)) {
    Locked locked;
    for (Physical *physical : all())
        if (so(*physical)) return true;
    return false;
}

size_t Physical::bytes_of_all() {
    Locked locked;
    size_t bytes = 0;
    for (Physical *physical : all()) bytes += physical->bytes;
    return bytes;
}

} // namespace test_double
