// T0: what this machine allows. Each facility that a restart needs is tried in a process of its own before the driver is
// touched; then the driver's attributes; last, whether the driver locks its own process. Passes if it does.
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "experiment.h"

// Runs `attempt` in a child; its return value is an errno, 0 for success.
template <typename F> static void facility(const char *name, F attempt) {
    pid_t child = fork();
    SYS(child);
    if (child == 0) _exit(attempt() & 0xff);
    int status;
    SYS(waitpid(child, &status, 0));
    if (WIFSIGNALED(status)) note("%s: killed by signal %d", name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == 0) note("%s: works", name);
    else note("%s: %s", name, strerror(WEXITSTATUS(status)));
}

static int seize_and_interrupt() {
    pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    int failed = 0, status;
    if (ptrace(PTRACE_SEIZE, child, 0, 0) == -1 || ptrace(PTRACE_INTERRUPT, child, 0, 0) == -1) failed = errno;
    else if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) failed = EIO;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return failed;
}

static int clone_with_tid() {
    pid_t wanted = getpid() + 4000, number = wanted;
    clone_args arguments = {};
    arguments.exit_signal = SIGCHLD;
    arguments.set_tid = reinterpret_cast<uint64_t>(&number);
    arguments.set_tid_size = 1;
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == -1) return errno;
    if (child == 0) _exit(0);
    int status;
    waitpid(pid_t(child), &status, 0);
    return child == wanted ? 0 : EINVAL;
}

static int write_protection() {
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (fd == -1) return errno;
    // UFFD_FEATURE_WP_UNPOPULATED and UFFD_FEATURE_WP_ASYNC, by number: they are newer than some headers.
    uffdio_api api = {};
    api.api = UFFD_API;
    api.features = 1 << 13 | 1 << 15;
    return ioctl(int(fd), UFFDIO_API, &api) == -1 ? errno : 0;
}

static int pagemap_scan() {
    struct {
        uint64_t size, flags, start, end, walk_end, regions, region_count, pages_max, inverted, mask, any, returned;
    } arguments = {};
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return errno;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd == -1) return errno;
    uint64_t region[3];
    arguments.size = sizeof arguments;
    arguments.start = reinterpret_cast<uint64_t>(page);
    arguments.end = arguments.start + 4096;
    arguments.regions = reinterpret_cast<uint64_t>(region);
    arguments.region_count = 1;
    arguments.any = arguments.returned = 1 << 3; // present
    *static_cast<char *>(page) = 1;
    int found = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'f', 16, 96), &arguments);
    return found == -1 ? errno : found == 1 ? 0 : EIO;
}

static void attribute(CUdevice device, const char *name, CUdevice_attribute which) {
    int value = 0;
    CUresult error = driver().cuDeviceGetAttribute(&value, which, device);
    if (error == CUDA_SUCCESS) note("%s: %d", name, value);
    else note("%s: %s", name, cu_name(error));
}

int main() {
    utsname machine;
    SYS(uname(&machine));
    note("kernel %s %s", machine.release, machine.version);
    bool is_gvisor = strcmp(machine.release, "4.4.0") == 0;
    note("gVisor: %s", is_gvisor ? "yes, by its kernel's release" : "no");
    facility("ptrace seize and interrupt", seize_and_interrupt);
    facility("clone3 with set_tid", clone_with_tid);
    facility("unshare of user and pid namespaces", [] { return unshare(CLONE_NEWUSER | CLONE_NEWPID) ? errno : 0; });
    facility("unshare of a pid namespace", [] { return unshare(CLONE_NEWPID) ? errno : 0; });
    facility("userfaultfd, asynchronous write protection", write_protection);
    facility("PAGEMAP_SCAN", pagemap_scan);
    for (const char *path : {"/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/pid_max",
                             "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/driver/nvidia/version"}) {
        auto lines = lines_of(path);
        note("%s: %s", path, lines.empty() ? "not there" : lines[0].c_str());
    }

    double begun = now_s();
    CU(driver().cuInit(0));
    note("cuInit: %.0f ms", (now_s() - begun) * 1e3);
    int version;
    CU(driver().cuDriverGetVersion(&version));
    note("the driver's CUDA version: %d", version);
    CUdevice device;
    CU(driver().cuDeviceGet(&device, 0));
    attribute(device, "pageable memory access", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
    attribute(device, "by the host's page tables", CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
    attribute(device, "concurrent managed access", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
    attribute(device, "virtual memory management", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    attribute(device, "handles as descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    attribute(device, "memory pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    attribute(device, "physical memory of the host's nodes", CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    RT(cudaFree(nullptr)); // makes the context
    snapshot("T0", "with a context");

    Step locked = lock(getpid(), 10000);
    note("lock of the own process: %s in %.1f ms, state %s", cu_name(locked.error), locked.seconds * 1e3,
         state_of(getpid()));
    if (locked.error == CUDA_SUCCESS) {
        Step unlocked = unlock(getpid());
        note("unlock: %s in %.1f ms", cu_name(unlocked.error), unlocked.seconds * 1e3);
    }
    return result("T0", locked.error == CUDA_SUCCESS, "lock: %s, gVisor: %s", cu_name(locked.error), is_gvisor ? "yes" : "no");
}
