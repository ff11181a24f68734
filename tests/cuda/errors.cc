// Entry points that name errors.
#include "call.h"

namespace {

struct Named {
    CUresult error;
    const char *name, *text;
};

// The errors that the double returns.
#define ERROR(name, text) {name, #name, text}
constexpr Named NAMES[] = {
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const Named *named(CUresult error) {
    for (const Named &one : NAMES)
        if (one.error == error) return &one;
    return nullptr;
}

} // namespace

CUresult cuGetErrorName(CUresult error, const char **name) {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Named *found = named(error);
    *name = found == nullptr ? nullptr : found->name;
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Named *found = named(error);
    *text = found == nullptr ? nullptr : found->text;
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
