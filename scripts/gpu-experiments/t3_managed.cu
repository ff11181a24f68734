// T3: managed memory, which the driver refuses to checkpoint.
//
//     t3_managed live        what it says, and whether the program goes on afterwards
//     t3_managed evacuate    copied out and freed, allocated again: is the address the same?
//     t3_managed reserve     freed, its address reserved for the virtual-memory calls and backed with the host's memory
//     t3_managed replace     ordinary memory moved over it, then freed, and allocated again at the same address
//     t3_managed register    ordinary memory at a chosen address, registered: managed in all but migration
//     t3_managed pageable    ordinary memory that kernels reach by the host's page tables
//
// Passes if the way gives the same address and the same bytes; `live` passes if it is refused and the program goes on.
#include <sys/mman.h>
#include <sys/uio.h>

#include <thread>

#include "pattern.cuh"
#include "vmm.cuh"

constexpr size_t BYTES = 256 * MIB;

static Cycle by_thread(const char *when) {
    Cycle done;
    std::thread([&] { done = cycle(getpid(), [&] { snapshot("T3", when); }); }).join();
    done.print(when);
    return done;
}

static bool host_sees(const uint64_t *words, uint64_t seed) {
    for (size_t at = 0; at < BYTES / 8; at += 511)
        if (words[at] != word_at(at, seed)) return false;
    return true;
}

static int failed_at(const char *way, const Cycle &done) {
    return result("T3", false, "%s: %s gave %s, state %s", way, done.at, cu_name(done.error), state_of(getpid()));
}

static int live() {
    void *memory;
    RT(cudaMallocManaged(&memory, BYTES));
    fill(memory, BYTES, 3);
    Cycle done = by_thread("live");
    if (done.ok()) {
        bool same = wrong_words(memory, BYTES, 3) == 0 && host_sees(static_cast<uint64_t *>(memory), 3);
        return result("T3", same, "live: the driver took it, bytes %s", same ? "equal" : "DIFFER");
    }
    note("refused at %s with %s, state %s", done.at, cu_name(done.error), state_of(getpid()));
    if (strcmp(state_of(getpid()), "LOCKED") == 0) note("unlock: %s", cu_name(unlock(getpid()).error));
    note("state: %s", state_of(getpid()));
    bool same = strcmp(state_of(getpid()), "RUNNING") == 0 && wrong_words(memory, BYTES, 3) == 0;
    return result("T3", same, "live: refused at %s with %s, the program %s", done.at, cu_name(done.error),
                  same ? "goes on" : "is lost");
}

static int evacuate() {
    uint64_t *memory, *again;
    RT(cudaMallocManaged(&memory, BYTES));
    fill(memory, BYTES, 4);
    std::vector<uint64_t> kept(memory, memory + BYTES / 8);
    RT(cudaFree(memory));
    Cycle done = by_thread("evacuated");
    if (!done.ok()) return failed_at("evacuate", done);
    RT(cudaMallocManaged(&again, BYTES));
    memcpy(again, kept.data(), BYTES);
    bool same = wrong_words(again, BYTES, 4) == 0;
    note("it was at %p, it is at %p", static_cast<void *>(memory), static_cast<void *>(again));
    return result("T3", again == memory && same, "evacuate: address %s, bytes %s", again == memory ? "the same" : "ANOTHER",
                  same ? "equal" : "DIFFER");
}

static int reserve_its_address() {
    uint64_t *memory;
    RT(cudaMallocManaged(&memory, BYTES));
    fill(memory, BYTES, 5);
    std::vector<uint64_t> kept(memory, memory + BYTES / 8);
    RT(cudaFree(memory));
    Cycle done = by_thread("freed");
    if (!done.ok()) return failed_at("reserve", done);
    Region region;
    region.bytes = BYTES;
    CU(driver().cuMemAddressReserve(&region.address, BYTES, 0, reinterpret_cast<CUdeviceptr>(memory), 0));
    note("asked for %p, got %p", static_cast<void *>(memory), region.as<void>());
    CUmemAllocationProp host = {};
    host.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    host.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    CU(driver().cuMemCreate(&region.handle, BYTES, &host, 0));
    CU(driver().cuMemMap(region.address, BYTES, 0, region.handle, 0));
    CUmemAccessDesc access[2] = {};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access[1].location = host.location;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(driver().cuMemSetAccess(region.address, BYTES, access, 2));
    memcpy(region.as<void>(), kept.data(), BYTES);
    bool same = wrong_words(region.as<void>(), BYTES, 5) == 0, there = region.as<uint64_t>() == memory;
    return result("T3", there && same, "reserve: address %s, bytes %s", there ? "the same" : "ANOTHER",
                  same ? "equal" : "DIFFER");
}

// As the host sees it, which may see nothing there.
static bool is_there(const uint64_t *words, const std::vector<uint64_t> &expected) {
    std::vector<uint64_t> read(BYTES / 8);
    iovec to = {read.data(), BYTES}, from = {const_cast<uint64_t *>(words), BYTES};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == ssize_t(BYTES) && read == expected;
}

static int replace() {
    uint64_t *memory, *again = nullptr;
    RT(cudaMallocManaged(&memory, BYTES));
    fill(memory, BYTES, 9);
    std::vector<uint64_t> kept(memory, memory + BYTES / 8);
    void *ordinary = mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(ordinary, kept.data(), BYTES);
    if (mremap(ordinary, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, memory) != memory)
        return result("T3", false, "replace: mremap: %s", strerror(errno));
    bool moved = is_there(memory, kept);
    cudaError_t freed = cudaFree(memory);
    bool stays = is_there(memory, kept);
    note("ordinary memory in its place: %s; then cudaFree: %s, and it %s", moved ? "yes" : "NO", cudaGetErrorName(freed),
         stays ? "is still there" : "is GONE");
    if (freed != cudaSuccess) return result("T3", false, "replace: cudaFree gave %s", cudaGetErrorName(freed));
    Cycle done = by_thread("replaced");
    if (!done.ok()) return failed_at("replace", done);
    RT(cudaMallocManaged(&again, BYTES));
    note("it was at %p; while that was occupied it is at %p", static_cast<void *>(memory), static_cast<void *>(again));
    if (again != memory) {
        RT(cudaFree(again));
        munmap(memory, BYTES);
        RT(cudaMallocManaged(&again, BYTES));
        note("when it was free, at %p", static_cast<void *>(again));
    }
    memcpy(again, kept.data(), BYTES);
    bool same = wrong_words(again, BYTES, 9) == 0;
    return result("T3", moved && stays && again == memory && same, "replace: ordinary memory %s, address %s, bytes %s",
                  moved && stays ? "stays" : "does NOT stay", again == memory ? "the same" : "ANOTHER",
                  same ? "equal" : "DIFFER");
}

static int register_ordinary_memory() {
    void *wanted = reinterpret_cast<void *>(0x600000000000);
    void *memory = mmap(wanted, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != wanted) return result("T3", false, "register: mmap at %p: %s", wanted, strerror(errno));
    double begun = now_s();
    RT(cudaHostRegister(memory, BYTES, cudaHostRegisterMapped | cudaHostRegisterPortable));
    note("registered in %.1f ms", (now_s() - begun) * 1e3);
    void *device;
    RT(cudaHostGetDevicePointer(&device, memory, 0));
    fill(device, BYTES, 6);
    Cycle done = by_thread("registered");
    if (!done.ok()) return failed_at("register", done);
    bool same = host_sees(static_cast<uint64_t *>(memory), 6) && wrong_words(device, BYTES, 6) == 0;
    fill(device, BYTES, 7);
    bool writes = host_sees(static_cast<uint64_t *>(memory), 7);
    return result("T3", device == memory && same && writes, "register: device address %s, bytes %s, kernels %s",
                  device == memory ? "the same" : "ANOTHER", same ? "equal" : "DIFFER", writes ? "write it" : "do NOT write it");
}

static int pageable() {
    int has = 0;
    RT(cudaDeviceGetAttribute(&has, cudaDevAttrPageableMemoryAccess, 0));
    if (!has) return result("T3", false, "pageable: this machine has no access to pageable memory");
    uint64_t *memory = static_cast<uint64_t *>(aligned_alloc(4096, BYTES));
    memset(memory, 0, BYTES);
    fill(memory, BYTES, 8);
    Cycle done = by_thread("pageable");
    if (!done.ok()) return failed_at("pageable", done);
    bool same = host_sees(memory, 8) && wrong_words(memory, BYTES, 8) == 0;
    return result("T3", same, "pageable: bytes %s", same ? "equal" : "DIFFER");
}

int main(int count, char **arguments) {
    std::string way = count > 1 ? arguments[1] : "";
    if (way == "live") return live();
    if (way == "evacuate") return evacuate();
    if (way == "reserve") return reserve_its_address();
    if (way == "replace") return replace();
    if (way == "register") return register_ordinary_memory();
    if (way == "pageable") return pageable();
    return fprintf(stderr, "t3_managed live|evacuate|reserve|replace|register|pageable\n"), 2;
}
