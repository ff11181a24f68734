// Two processes with a device each, of which the child ends so many milliseconds after the agent has begun to hold its devices.
//
//   vanishing DELAY_MS
//
// The parent says "ready" when both have what they need, and looks at its memory and its child when it gets SIGUSR2.
#include "expect.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>
#include <string>

namespace {

constexpr size_t WORDS = 1 << 20;

CUdeviceptr with_device(uint32_t value) {
    CUcontext context;
    CUdeviceptr memory;
    EXPECT_OK(cuInit(0));
    EXPECT_OK(cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT_OK(cuCtxSetCurrent(context));
    EXPECT_OK(cuMemAlloc(&memory, WORDS * 4));
    EXPECT_OK(cuMemsetD32(memory, value, WORDS));
    EXPECT_OK(cuCtxSynchronize());
    return memory;
}

// Whether libckpt.so has a thread that talks to the agent.
bool is_held() {
    DIR *threads = opendir("/proc/self/task");
    bool found = false;
    while (dirent *thread = readdir(threads)) {
        std::string name;
        std::getline(std::ifstream("/proc/self/task/" + std::string(thread->d_name) + "/comm"), name);
        found |= name == "ckpt-line";
    }
    closedir(threads);
    return found;
}

[[noreturn]] void be_child(int ready, useconds_t delay_us) {
    with_device(8);
    EXPECT(write(ready, "r", 1) == 1);
    while (!is_held()) usleep(200);
    usleep(delay_us);
    _exit(7);
}

} // namespace

int main(int count, char **arguments) {
    EXPECT(count == 2);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGUSR2);
    sigprocmask(SIG_BLOCK, &awaited, nullptr);
    int ready[2], number, status;
    char byte;
    EXPECT(pipe(ready) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) be_child(ready[1], useconds_t(atoi(arguments[1])) * 1000);
    EXPECT(read(ready[0], &byte, 1) == 1);
    CUdeviceptr memory = with_device(9);
    printf("ready\n");
    fflush(stdout);
    EXPECT(sigwait(&awaited, &number) == 0);
    EXPECT(all_are(memory, WORDS, 9));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return 0;
}
