// Counts in managed memory, and has a heap of its own whose lock is always held: by a thread that lets others have it in turn, and
// has it back behind each of them. Who asks what there is in the heap (mallinfo) waits for it; while that thread is stopped, for ever.
//
//   hoarded STEPS
#include "expect.h"

#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#define ok EXPECT_OK

namespace {

// Whose turn it is, and whose is the next that nobody has taken.
std::atomic<unsigned> turn{0}, next{0};

void wait_for(unsigned own) {
    while (turn != own) usleep(100);
}

void hoard() {
    unsigned own = next++;
    for (;;) {
        wait_for(own);
        while (next == own + 1) usleep(100); // nobody waits
        // It stands in line again before it lets go.
        unsigned again = next++;
        turn = own + 1;
        own = again;
    }
}

// As the harness says.
void wait_for_the_harness(int step) {
    const char *place = getenv("CKPT_VICTIM_WAITS_AT"), *sign = getenv("CKPT_VICTIM_WAITS_FOR");
    if (place == nullptr || sign == nullptr || step != atoi(place)) return;
    while (access(sign, F_OK) != 0) usleep(1000);
}

} // namespace

extern "C" struct mallinfo mallinfo() noexcept {
    unsigned own = next++;
    wait_for(own);
    turn = own + 1;
    return {};
}

int main(int, char **arguments) {
    CUcontext context;
    CUdeviceptr memory;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    ok(cuMemsetD32(memory, 0, 1 << 18));
    std::thread(hoard).detach();
    while (next == 0) usleep(100);
    for (int step = 1; step <= atoi(arguments[1]); ++step) {
        uint32_t *word = reinterpret_cast<uint32_t *>(memory) + step;
        *word = word[-1] + uint32_t(step);
        printf("step %d %u\n", step, *word);
        fflush(stdout);
        wait_for_the_harness(step);
        usleep(3000);
    }
    puts("done");
    fflush(stdout);
    _exit(7);
}
