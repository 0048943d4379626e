// The operations of a forward pass as they ran: what each had to move and to compute, which kernels
// it launched, and when.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Nanoseconds on std::chrono::steady_clock, the clock of logs and traces.
int64_t steady_now_ns() noexcept;

// What a call needs at least, whatever kernel runs it.
struct OpCost {
  double read_bytes = 0;     // every input once
  double written_bytes = 0;  // every output once
  double flops = 0;
  std::string shape = {};  // "16x6144x4096"
  bool is_known = true;    // false: the operation does not say

  double bytes() const { return read_bytes + written_bytes; }
};

struct OpCall {
  std::string op;   // "gemm"
  std::string row;  // "gemm_sm90_bf16", or "cpu"
  OpCost cost = {};
  std::vector<const char*> kernels = {};  // symbols, in the order of their launches
  int64_t begin_ns = 0;                   // steady_now_ns; on a GPU the host's part
  int64_t end_ns = 0;
};

struct OpLog {
  std::vector<OpCall> calls;
  bool is_in_call = false;  // calls that a call makes are part of it
};

// Notes the operations that this thread calls, in order, until the scope ends. They may then wait
// for the GPU, to read the lengths of sequences, and cannot be captured. Not nested.
class OpLogScope {
 public:
  explicit OpLogScope(OpLog& log);
  ~OpLogScope();
  OpLogScope(const OpLogScope&) = delete;
  OpLogScope& operator=(const OpLogScope&) = delete;
};
// The log of this thread; null: none.
OpLog* current_op_log() noexcept;

}  // namespace tessera
