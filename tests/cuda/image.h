// What is in an image of kernels: the names of its kernels, and its variables. PTX is read for them. Of machine code only that
// it is some is looked at, and it is taken to hold every kernel that the double has.
#pragma once

#include <stddef.h>

#include <set>
#include <string>
#include <vector>

namespace test_double {

struct Variable {
    std::string name;
    size_t bytes;
    bool is_managed;
};

struct Image {
    bool is_machine_code = false;
    std::set<std::string> kernels;
    std::vector<Variable> variables;

    bool has_kernel(const std::string &name) const;
};

// False if it is neither.
bool read_image(const void *image, Image &read);

} // namespace test_double
