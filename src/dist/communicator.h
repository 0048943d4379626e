// The ranks that share a model, and what they exchange.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::dist {

// One rank's end. Calls are collective: every rank makes the same ones in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // values = the sum of every rank's values, added in rank order; in place.
  virtual void all_reduce_sum(const TensorView& values, const Context& ctx) = 0;
  // all[:, rank * n : (rank + 1) * n] = that rank's part [m, n].
  virtual void all_gather_columns(const TensorView& part, const TensorView& all,
                                  const Context& ctx) = 0;
};

// A world of one. Its part is already the whole, so nothing moves.
class LocalCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(const TensorView&, const Context&) override {}
  void all_gather_columns(const TensorView& part, const TensorView& all,
                          const Context& ctx) override;  // nothing where part is all; else a copy
};

}  // namespace tessera::dist
