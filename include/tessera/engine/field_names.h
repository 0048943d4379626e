// What refusals call the fields of requests and options.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace tessera {

// A C++ caller wants to read "max_new_tokens", a person at a command line the flag that sets it, a
// client of a server the key of its JSON. Without a function fields have their own names.
struct FieldNames {
  std::function<std::string(std::string_view field)> name = {};

  std::string operator()(std::string_view field) const {
    return name ? name(field) : std::string(field);
  }
  // "stop[2]"; where fields have other names, one value is not told from the next.
  std::string element(std::string_view field, size_t index) const {
    return name ? name(field) : std::string(field) + "[" + std::to_string(index) + "]";
  }
  // "request: " before fields that go by their own names.
  std::string prefix(std::string_view owner) const {
    return name ? std::string() : std::string(owner) + ": ";
  }
};

}  // namespace tessera
