// Guarded buffers for a problem's operands.
// SPDX-License-Identifier: MIT
#include "bench/instance.h"

#include <algorithm>

#include "bench/problems/builder.h"
#include "core/text.h"
#include "tessera/core/device.h"

namespace tessera::bench {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kGuardBytes = 256;
constexpr uint8_t kGuard = 0xc3;

// Room for an operand and a guard on either side of it.
int64_t slot_bytes(const Operand& operand) {
  const int64_t bytes = operand.host.size_bytes();
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + 2 * kGuardBytes;
}

}  // namespace

int64_t Instance::set_bytes(const Problem& problem) {
  int64_t bytes = 0;
  for (const Operand& operand : problem.operands) bytes += slot_bytes(operand);
  return bytes;
}

Instance::Instance(const Problem& problem, Device device, int64_t num_sets)
    : problem_(&problem),
      device_(device),
      set_bytes_(set_bytes(problem)),
      arena_(DType::u8, {num_sets * set_bytes_}, device) {
  int64_t offset = 0;
  for (const Operand& operand : problem.operands) {
    offsets_.push_back(offset + kGuardBytes);
    offset += slot_bytes(operand);
  }
  for (int64_t set = 0; set < num_sets; ++set) {
    char* base = arena_.view().as<char>() + set * set_bytes_;
    std::vector<TensorView>& views = views_.emplace_back();
    for (size_t i = 0; i < problem.operands.size(); ++i) {
      views.push_back(problem.operands[i].place(base + offsets_[i], device));
    }
  }
}

char* Instance::storage(size_t operand) const {
  return arena_.view().as<char>() + offsets_[operand];
}

void Instance::reset() {
  char* base = arena_.view().as<char>();
  fill_bytes(base, device_, kGuard, static_cast<size_t>(set_bytes_));
  for (size_t i = 0; i < problem_->operands.size(); ++i) {
    const Operand& operand = problem_->operands[i];
    const auto num_bytes = static_cast<size_t>(operand.host.size_bytes());
    if (num_bytes == 0) continue;
    if (operand.role == Role::output || operand.role == Role::scratch) {
      fill_bytes(storage(i), device_, poison_byte(operand.host.view().dtype), num_bytes);
    } else {
      copy_bytes(storage(i), device_, operand.host.view().data, cpu_device(), num_bytes);
    }
  }
  for (int64_t set = 1; set < num_sets(); ++set) {
    copy_bytes(base + set * set_bytes_, device_, base, device_, static_cast<size_t>(set_bytes_));
  }
  synchronize(device_);
}

Tensor Instance::download(size_t operand) const {
  const TensorView& like = problem_->operands[operand].host.view();
  Tensor host(like.dtype, {like.num_elements()});
  if (host.size_bytes() > 0) {
    copy_bytes(host.view().data, cpu_device(), storage(operand), device_,
               static_cast<size_t>(host.size_bytes()));
    synchronize(device_);
  }
  return host;
}

Tensor Instance::download_rows(size_t operand, std::span<const int64_t> rows) const {
  const Operand& like = problem_->operands[operand];
  const DType dtype = like.host.view().dtype;
  Tensor host(dtype, {like.offset + static_cast<int64_t>(rows.size()) * like.strides[0]});
  std::fill_n(host.view().as<uint8_t>(), host.size_bytes(), poison_byte(dtype));
  const int64_t row_bytes = storage_bytes(dtype, like.strides[0]);
  const int64_t offset_bytes = storage_bytes(dtype, like.offset);
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t to = offset_bytes + static_cast<int64_t>(r) * row_bytes;
    copy_bytes(host.view().as<char>() + to, cpu_device(),
               storage(operand) + offset_bytes + rows[r] * row_bytes, device_,
               static_cast<size_t>(row_bytes));
  }
  synchronize(device_);
  return host;
}

std::string Instance::damage() const {
  const auto is_whole = [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> bytes(static_cast<size_t>(end - begin));
    copy_bytes(bytes.data(), cpu_device(), arena_.view().as<char>() + begin, device_, bytes.size());
    synchronize(device_);
    return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == kGuard; });
  };
  for (size_t i = 0; i < problem_->operands.size(); ++i) {
    const Operand& operand = problem_->operands[i];
    if (!is_whole(offsets_[i] - kGuardBytes, offsets_[i])) {
      return concat("memory before ", operand.name, " was written");
    }
    const int64_t end = offsets_[i] + operand.host.size_bytes();
    if (!is_whole(end, offsets_[i] - kGuardBytes + slot_bytes(operand))) {
      return concat("memory behind ", operand.name, " was written");
    }
  }
  return {};
}

}  // namespace tessera::bench
