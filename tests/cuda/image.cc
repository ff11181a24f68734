#include "image.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sstream>

#include "kernels.h"

namespace test_double {

namespace {

// The words of a declaration, without the brackets and commas of PTX but with the length of an array as a word of its own.
std::vector<std::string> words_of(std::string line) {
    for (char &letter : line)
        if (strchr("[];,(){}=", letter) != nullptr) letter = ' ';
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
}

// The bytes of a type such as .u32 or .b8; 0 for any other word.
size_t type_bytes(const std::string &word) {
    bool is_type = word.size() >= 3 && word[0] == '.' && strchr("busf", word[1]) != nullptr;
    return is_type ? strtoull(word.c_str() + 2, nullptr, 10) / 8 : 0;
}

// Such as: .visible .global .attribute(.managed) .align 4 .b8 counts[16];
void read_variable(const std::string &line, Image &read) {
    auto words = words_of(line.substr(0, line.find('=')));
    Variable variable{"", 0, line.find(".managed") != std::string::npos};
    for (size_t at = 0; at < words.size(); ++at) {
        size_t bytes = type_bytes(words[at]);
        if (bytes == 0 || at + 1 >= words.size()) continue;
        variable.name = words[at + 1];
        variable.bytes = bytes * (at + 2 < words.size() ? strtoull(words[at + 2].c_str(), nullptr, 10) : 1);
    }
    if (!variable.name.empty()) read.variables.push_back(variable);
}

// The code of a fatbin's first entry, or null if that is no PTX (runtime/src/device_code/fatbin has the layout).
const char *first_text(const char *fatbin) {
    uint16_t header_bytes, kind;
    uint32_t entry_bytes;
    memcpy(&header_bytes, fatbin + 6, sizeof header_bytes);
    memcpy(&kind, fatbin + header_bytes, sizeof kind);
    memcpy(&entry_bytes, fatbin + header_bytes + 4, sizeof entry_bytes);
    return kind == 1 ? fatbin + header_bytes + entry_bytes : nullptr;
}

} // namespace

bool Image::has_kernel(const std::string &name) const {
    return is_machine_code ? on_cpu::kernel_named(name.c_str()) != nullptr : kernels.count(name) != 0;
}

bool read_image(const void *image, Image &read) {
    const char *text = static_cast<const char *>(image);
    constexpr unsigned char FATBIN[] = {0x50, 0xed, 0x55, 0xba}, WRAPPER[] = {0xb1, 0x43, 0x62, 0x46};
    if (memcmp(text, "\x7f" "ELF", 4) == 0) return read.is_machine_code = true;
    if (memcmp(text, WRAPPER, 4) == 0) {
        const void *wrapped;
        memcpy(&wrapped, text + 8, sizeof wrapped);
        return read_image(wrapped, read);
    }
    if (memcmp(text, FATBIN, 4) == 0 && (text = first_text(text)) == nullptr) return read.is_machine_code = true;
    if (strstr(text, ".version") == nullptr) return false;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        auto words = words_of(line);
        bool is_declaration = !words.empty() && words[0][0] == '.';
        if (!is_declaration) continue;
        for (size_t at = 0; at < words.size(); ++at) {
            if (words[at] == ".entry" && at + 1 < words.size()) read.kernels.insert(words[at + 1]);
            if (words[at] == ".global" || words[at] == ".const") read_variable(line, read);
        }
    }
    return true;
}

} // namespace test_double
