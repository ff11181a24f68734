// Streams, events, and what waits for what.
#include "groups.h"

#include <semaphore.h>

// A host function of a stream that waits until it is let go.
struct Brake {
    sem_t semaphore;
    Brake() { sem_init(&semaphore, 0, 0); }
    ~Brake() { sem_destroy(&semaphore); }
    void release() { sem_post(&semaphore); }
    static void wait(void *brake) {
        while (sem_wait(&static_cast<Brake *>(brake)->semaphore) != 0) {
        }
    }
};

static void count_up(void *count) { ++*static_cast<int *>(count); }
static void CUDA_CB count_callback(CUstream, CUresult, void *count) { ++*static_cast<int *>(count); }

void streams() {
    begin("streams and events");
    CUstream blocking, free, urgent;
    CUevent event, timed;
    CUdeviceptr words;
    unsigned flags;
    int least, greatest, priority, count = 0;
    float milliseconds;
    CUcontext of;
    MUST(cuMemAlloc(&words, 4096));
    SAY(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    SAY(cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
    SAY(cuStreamGetFlags(free, &flags));
    number("flags", flags);
    SAY(cuCtxGetStreamPriorityRange(&least, &greatest));
    fact("there are priorities", greatest < least);
    SAY(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    SAY(cuStreamGetPriority(urgent, &priority));
    fact("it has that", priority == greatest);
    SAY(cuStreamGetCtx(blocking, &of));
    fact("of this context", of == context);
    SAY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    SAY(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    SAY(cuEventQuery(event));
    SAY(cuStreamQuery(blocking));

    Brake brake;
    SAY(cuLaunchHostFunc(blocking, Brake::wait, &brake));
    SAY(cuStreamQuery(blocking));
    SAY(cuEventRecord(event, blocking));
    SAY(cuEventQuery(event));
    SAY(cuMemsetD32Async(words, 7, 16, free));
    SAY(cuStreamSynchronize(free));
    SAY(cuStreamWaitEvent(free, event, 0));
    SAY(cuMemsetD32Async(words, 8, 16, free));
    SAY(cuStreamQuery(free));
    SAY(cuMemsetD32Async(words + 1024, 9, 16, CU_STREAM_LEGACY));
    SAY(cuStreamQuery(CU_STREAM_LEGACY));
    brake.release();
    SAY(cuStreamSynchronize(free));
    SAY(cuEventSynchronize(event));
    SAY(cuEventQuery(event));
    SAY(cuCtxSynchronize());
    SAY(cuStreamQuery(blocking));
    fact("all was done", all_are(words, 16, 8) && all_are(words + 1024, 16, 9));

    // In the order in which they are given, because the legacy default stream is one of the two.
    MUST(cuLaunchHostFunc(blocking, Brake::wait, &brake));
    MUST(cuMemsetD32Async(words, 1, 16, blocking));
    MUST(cuMemsetD32Async(words, 2, 16, CU_STREAM_LEGACY));
    MUST(cuMemsetD32Async(words, 3, 8, blocking));
    brake.release();
    MUST(cuStreamSynchronize(blocking));
    fact("one after the other", all_are(words, 8, 3) && all_are(words + 32, 8, 2));

    SAY(cuLaunchHostFunc(blocking, count_up, &count));
    SAY(cuStreamAddCallback(blocking, count_callback, &count, 0));
    SAY(cuStreamSynchronize(blocking));
    number("called", count);
    SAY(cuEventElapsedTime(&milliseconds, timed, timed));
    SAY(cuEventRecord(timed, blocking));
    SAY(cuEventSynchronize(timed));
    SAY(cuEventElapsedTime(&milliseconds, timed, timed));
    fact("no time", milliseconds == 0);
    SAY(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    SAY(cuStreamSynchronize(nullptr));
    SAY(cuEventDestroy(event));
    SAY(cuEventDestroy(timed));
    SAY(cuStreamDestroy(blocking));
    SAY(cuStreamDestroy(free));
    SAY(cuStreamDestroy(urgent));
    MUST(cuMemFree(words));
}
