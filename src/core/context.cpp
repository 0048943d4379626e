// Workspace: a bump allocator over one tensor.
// SPDX-License-Identifier: MIT
#include "tessera/core/context.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

constexpr int64_t kAlignment = 256;

constexpr int64_t align_up(int64_t value) { return (value + kAlignment - 1) & ~(kAlignment - 1); }

// CPU memory promises less than kAlignment, so a little more than asked for is allocated.
int64_t padded(int64_t num_bytes) {
  if (num_bytes < 0) fail(concat("Workspace: size is ", num_bytes, " bytes; must not be negative"));
  return num_bytes + kAlignment;
}

}  // namespace

Workspace::Workspace(Device device, int64_t num_bytes)
    : memory_(DType::u8, {padded(num_bytes)}, device), size_bytes_(num_bytes) {}

void* Workspace::take(int64_t num_bytes) {
  if (num_bytes < 0) fail(concat("Workspace: asked for ", num_bytes, " bytes"));
  const int64_t begin = align_up(used_bytes_);
  if (num_bytes > size_bytes_ - begin) {
    fail(concat("Workspace: asked for ", num_bytes, " bytes; ",
                begin < size_bytes_ ? size_bytes_ - begin : 0, " of ", size_bytes_,
                " are left; make it at least ", begin + num_bytes, " bytes"));
  }
  used_bytes_ = begin + num_bytes;
  const auto address = reinterpret_cast<intptr_t>(memory_.view().data);
  return memory_.view().as<std::byte>() + (align_up(address) - address) + begin;
}

}  // namespace tessera
