// Has the driver take everything off the device, waits for SIGUSR2, and has it brought back: what can happen in between is that
// the program is checkpointed, killed and restarted.
#include "trace.h"

#include <signal.h>
#include <unistd.h>

namespace {

constexpr size_t WORDS = 1 << 20;

// Of all threads that are made from now on.
sigset_t block(int number) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, number);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    return blocked;
}

} // namespace

int main() {
    sigset_t awaited = block(SIGUSR2);
    int number;
    CUcontext context;
    CUdeviceptr plain, pooled;
    CUstream stream;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&plain, WORDS * 4));
    MUST(cuMemAllocAsync(&pooled, 1000, stream));
    MUST(cuMemsetD32Async(plain, 7, WORDS, stream));
    MUST(cuMemsetD32Async(pooled, 8, 250, stream));
    MUST(cuStreamSynchronize(stream));

    SAY(cuCheckpointProcessLock(getpid(), nullptr));
    SAY(cuCheckpointProcessCheckpoint(getpid(), nullptr));
    printf("ready\n");
    fflush(stdout);
    while (sigwait(&awaited, &number) != 0) {
    }
    SAY(cuCheckpointProcessRestore(getpid(), nullptr));
    SAY(cuCheckpointProcessUnlock(getpid(), nullptr));

    fact("memory as before", all_are(plain, WORDS, 7) && all_are(pooled, 250, 8));
    SAY(cuMemsetD32Async(plain, 9, WORDS, stream));
    SAY(cuStreamSynchronize(stream));
    fact("the stream still works", all_are(plain, WORDS, 9));
    return 0;
}
