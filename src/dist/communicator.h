// What the ranks of a tensor-parallel model exchange.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::dist {

// One rank's side. Calls are collective: every rank makes the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Replaces `values` on every rank by the sum over the ranks, added in rank order.
  virtual void all_reduce_sum(const TensorView& values, const Context& ctx) = 0;
  // all[:, r * n : (r + 1) * n] = the part [m, n] of rank r, on every rank.
  virtual void all_gather_columns(const TensorView& part, const TensorView& all,
                                  const Context& ctx) = 0;
};

// A single rank: nothing is exchanged.
class LocalCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(const TensorView&, const Context&) override {}
  void all_gather_columns(const TensorView& part, const TensorView& all,
                          const Context& ctx) override;  // a copy, unless part is all
};

}  // namespace tessera::dist
