// Kernels by name, and how each is called with the parameters of a launch.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

namespace on_cpu {

struct Kernel {
    const char *name;
    // Copies the parameters at once, as a launch does.
    std::function<std::function<void()>(void **)> with;
};

template <typename... Parameters, size_t... At>
std::function<void()> call_with(void (*function)(Parameters...), void **parameters, std::index_sequence<At...>) {
    return [function, copies = std::tuple(*static_cast<std::decay_t<Parameters> *>(parameters[At])...)] {
        std::apply(function, copies);
    };
}

template <typename... Parameters> Kernel kernel(const char *name, void (*function)(Parameters...)) {
    return {name, [function](void **parameters) {
                return call_with(function, parameters, std::index_sequence_for<Parameters...>());
            }};
}

// Of the sources that this library is built of; null if there is none of this name.
const Kernel *kernel_named(const char *name);

} // namespace on_cpu
