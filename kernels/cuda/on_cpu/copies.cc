// The driver's entry points that copy and fill. What they do is done in full, in the order of the stream.
#include <string.h>

#include "results.h"
#include "streams.h"

using namespace on_cpu;

extern "C" {

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    stream->push([=] { memcpy(pointer<void>(to), from, bytes); });
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    stream->push([=] { memcpy(to, pointer<void>(from), bytes); });
    return SUCCESS;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
    stream->push([=] { memmove(pointer<void>(to), pointer<void>(from), bytes); });
    return SUCCESS;
}
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream *stream) {
    stream->push([=] { memset(pointer<void>(to), byte, bytes); });
    return SUCCESS;
}
}
