// The attention ladder's steps: one row each, and the tests, the timer and the table walk the rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/library.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"

namespace tessera::ladder::attention {

inline constexpr int kHeadDim = 128;
// A score as the exponent of a power of two: 1 / sqrt(kHeadDim) times log2(e).
inline constexpr float kScaleLog2 = 0.08838834764831845f * 1.4426950408889634f;

// out = softmax(q . k^T / sqrt(kHeadDim)) . v for every head of every sequence. A causal query sees
// the keys up to its own place, any other all keys.
struct Problem {
  const Bf16* q;  // [batch, seq, heads, kHeadDim], as are the others; aligned to 16 bytes
  const Bf16* k;
  const Bf16* v;
  Bf16* out;
  int batch;
  int seq;
  int heads;
  bool is_causal;
  void* scratch = nullptr;  // as much as scratch_bytes says for the step

  // From a token to the next, in elements.
  constexpr int64_t row_stride() const { return int64_t{heads} * kHeadDim; }
  // Where row 0 of a head begins.
  constexpr int64_t head_offset(int sequence, int head) const {
    return int64_t{sequence} * seq * row_stride() + int64_t{head} * kHeadDim;
  }
  // How many keys a query sees, the first of them key 0.
  constexpr int num_keys(int query) const { return is_causal ? query + 1 : seq; }
};

struct Step {
  std::string_view name;  // "01_three_pass"
  std::string_view file;  // in ladder/attention
  Library library;
  int multiple;         // seq must be a multiple of it
  bool rounds_weights;  // to bf16, for the tensor cores, before the product with v
  void (*launch)(const Problem&, const Context&);
  int64_t (*scratch_bytes)(const Problem&) = nullptr;  // of Problem::scratch; null: none
  bool (*is_present)() = nullptr;  // in this build, on this GPU; null: wherever its library is

  bool accepts(int seq) const { return seq >= 1 && seq % multiple == 0; }
};

// In order.
std::span<const Step> steps();
// Throws, listing the names, if there is no such step.
const Step& find_step(std::string_view name);
// Why the step cannot run on this GPU in this build; empty where it can.
std::string missing(const Step& step);
// Scratch memory for the step on the GPU, never empty, and the problem with it.
Tensor make_scratch(const Step& step, const Problem& problem);
Problem with_scratch(Problem problem, const Tensor& scratch);
// Launches, after refusing lengths the step does not take.
void run(const Step& step, const Problem& problem, const Context& ctx);

int64_t three_pass_scratch_bytes(const Problem& problem);
void launch_three_pass(const Problem& problem, const Context& ctx);
void launch_online_softmax(const Problem& problem, const Context& ctx);
void launch_tiled(const Problem& problem, const Context& ctx);
void launch_tensor_core(const Problem& problem, const Context& ctx);
void launch_portable(const Problem& problem, const Context& ctx);
void launch_sm90(const Problem& problem, const Context& ctx);
bool has_portable();
bool has_sm90();

}  // namespace tessera::ladder::attention
