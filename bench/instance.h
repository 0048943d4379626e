// A problem in a device's memory: guarded buffers, one or many copies of them, ready to be called.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

class Instance {
 public:
  // `num_sets` copies of the operands in one allocation, each operand between guard bytes. The
  // problem must outlive the instance.
  Instance(const Problem& problem, Device device, int64_t num_sets = 1);

  // Restores every set: inputs as given, outputs poisoned, guards intact. Waits for the device.
  void reset();
  void run(int64_t set, const Context& ctx) const { problem_->call(views_[at(set)], ctx); }

  // Storage of one operand of the first set, on the host.
  Tensor download(size_t operand) const;
  // Only the given rows of a per-row operand, laid out like take_rows does.
  Tensor download_rows(size_t operand, std::span<const int64_t> rows) const;
  // Empty, or which operand of the first set has a damaged guard.
  std::string damage() const;

  int64_t num_sets() const { return static_cast<int64_t>(views_.size()); }
  const Problem& problem() const { return *problem_; }
  Device device() const { return device_; }
  // Bytes that one set takes, guards included.
  static int64_t set_bytes(const Problem& problem);

 private:
  static size_t at(int64_t set) { return static_cast<size_t>(set); }
  char* storage(size_t operand) const;

  const Problem* problem_;
  Device device_;
  int64_t set_bytes_;
  Tensor arena_;
  std::vector<int64_t> offsets_;                // of each operand's storage in a set
  std::vector<std::vector<TensorView>> views_;  // per set
};

}  // namespace tessera::bench
