// Has a child that was forked from it after it had made a context, past libc's handlers of fork, and later none.
#include "waits.h"

#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main() {
    wait_by_signal();
    CUcontext context;
    expect(cuInit(0) == CUDA_SUCCESS);
    expect(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    pid_t child = _Fork();
    expect(child >= 0);
    if (child == 0) {
        for (;;) pause();
    }
    wait_after("forked");
    expect(kill(child, SIGKILL) == 0 && waitpid(child, nullptr, 0) == child);
    wait_after("alone");
}
