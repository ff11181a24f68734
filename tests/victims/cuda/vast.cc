// Much device memory, of which each step changes a part: for measuring how long devices are away.
//
//   vast MIB CHANGED_PER_MILLE KERNELS
//
// Takes a step whenever a line comes, prints a checksum of a sample of it all, and ends with its input.
#include "expect.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#define ok EXPECT_OK

namespace {

constexpr size_t MIB = 1 << 20, PIECE_MIB = 1024;

std::vector<CUdeviceptr> pieces;
CUfunction fill_words;

CUdeviceptr place_of(size_t mib) { return pieces[mib / PIECE_MIB] + mib % PIECE_MIB * MIB; }

void fill(size_t mib, uint32_t value) {
    CUdeviceptr place = place_of(mib);
    uint64_t count = MIB / 4;
    void *parameters[] = {&place, &count, &value};
    ok(cuLaunchKernel(fill_words, 64, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr));
}

} // namespace

int main(int argc, char **argv) {
    EXPECT(argc == 4);
    size_t mibs = strtoull(argv[1], nullptr, 10), changed = (mibs * strtoull(argv[2], nullptr, 10) + 999) / 1000;
    CUcontext context;
    CUmodule module;
    ok(cuInit(0));
    ok(cuDevicePrimaryCtxRetain(&context, 0));
    ok(cuCtxSetCurrent(context));
    ok(cuModuleLoad(&module, argv[3]));
    ok(cuModuleGetFunction(&fill_words, module, "fill_words"));
    for (size_t at = 0; at < mibs; at += PIECE_MIB) {
        CUdeviceptr piece;
        ok(cuMemAlloc(&piece, (mibs - at < PIECE_MIB ? mibs - at : PIECE_MIB) * MIB));
        pieces.push_back(piece);
    }
    for (size_t at = 0; at < mibs; ++at) fill(at, uint32_t(at * 2654435761u));
    ok(cuCtxSynchronize());
    puts("ready");
    fflush(stdout);
    uint32_t step = 0;
    for (char line[16]; fgets(line, sizeof line, stdin) != nullptr;) {
        ++step;
        for (size_t part = 0; part < changed; ++part) fill((step * 7 + part * mibs / changed) % mibs, step * 40503u + uint32_t(part));
        uint64_t sum = 0;
        for (size_t at = 0; at < mibs; at += mibs / 64 + 1) {
            uint32_t word;
            ok(cuMemcpyDtoH(&word, place_of(at) + at % 1000 * 4, 4));
            sum = sum * 1000003 + word;
        }
        printf("step %u %016llx\n", step, (unsigned long long)sum);
        fflush(stdout);
    }
    puts("done");
}
