// Kernels by name, and how each is called with the parameters of a launch.
#pragma once

#include <functional>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace on_cpu {

class Kernel {
  public:
    template <typename... Parameters>
    Kernel(const char *name, void (*function)(Parameters...))
        : name(name), with([function](void **parameters) {
              return call_with(function, parameters, std::index_sequence_for<Parameters...>());
          }) {}

    const char *name;
    // Copies the parameters at once, as a launch does.
    std::function<std::function<void()>(void **)> with;

  private:
    template <typename... Parameters, size_t... At>
    static std::function<void()> call_with(void (*function)(Parameters...), void **parameters,
                                           std::index_sequence<At...>) {
        return [function, copies = std::tuple(*static_cast<std::decay_t<Parameters> *>(parameters[At])...)] {
            std::apply(function, copies);
        };
    }
};

// All that have been added; null if none of them has this name.
const Kernel *kernel_named(const char *name);

// Adds kernels, before the program begins.
struct Added {
    Added(std::initializer_list<Kernel> kernels);
};

} // namespace on_cpu
