// The states of the driver's checkpoint, of this process.
#include "groups.h"

#include <unistd.h>

static CUprocessState state() {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    MUST(cuCheckpointProcessGetState(getpid(), &state));
    return state;
}

void checkpoints() {
    begin("checkpoint");
    CUdeviceptr words;
    void *pinned;
    CUstream stream;
    CUcheckpointLockArgs lock = {};
    CUcheckpointCheckpointArgs checkpoint = {};
    CUcheckpointRestoreArgs restore = {};
    CUcheckpointUnlockArgs unlock = {};
    int tid = 0, pid = getpid();
    MUST(cuMemAlloc(&words, 40000));
    MUST(cuMemsetD32(words, 0xfeed, 10000));
    MUST(cuMemAllocHost(&pinned, 4096));
    memset(pinned, 9, 4096);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    number("state", state());
    SAY(cuCheckpointProcessGetRestoreThreadId(pid, &tid));
    fact("there is one", tid != 0);
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    SAY(cuCheckpointProcessCheckpoint(pid, &checkpoint));
    lock.timeoutMs = 10000;
    SAY(cuCheckpointProcessLock(pid, &lock));
    number("state", state());
    SAY(cuCheckpointProcessRestore(pid, &restore));
    SAY(cuCheckpointProcessCheckpoint(pid, &checkpoint));
    number("state", state());
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    SAY(cuCheckpointProcessRestore(pid, &restore));
    number("state", state());
    SAY(cuCheckpointProcessUnlock(pid, &unlock));
    number("state", state());
    fact("memory as before", all_are(words, 10000, 0xfeed));
    fact("pinned memory as before", static_cast<char *>(pinned)[4095] == 9);
    SAY(cuMemsetD32Async(words, 1, 10000, stream));
    SAY(cuStreamSynchronize(stream));
    fact("the stream still works", all_are(words, 10000, 1));
    MUST(cuStreamDestroy(stream));
    MUST(cuMemFreeHost(pinned));
    MUST(cuMemFree(words));
}
