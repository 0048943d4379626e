// Compares a device's results with the CPU's, within the bounds that a problem states.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"

namespace tessera::bench {

// Empty if every element of `got` is within the operand's bound of `want`; otherwise how many are
// not, with the worst one, both values and the bound. Two NaN agree. Both are whole storages, so
// gaps between rows are compared too.
std::string compare(const Operand& operand, const TensorView& got, const TensorView& want);

// Storages of all operands after a run on the CPU.
std::vector<Tensor> run_on_cpu(const Problem& problem);

// The CPU's results of a problem, with which any number of implementations are compared. Of
// problems of more than `most_bytes`, or with more arithmetic than a CPU does in seconds, only a
// sample is compared if they can provide one, or 64 rows if rows are independent.
class Reference {
 public:
  Reference(const ProblemMaker& maker, RowKey key, const Problem& problem, int64_t most_bytes);

  // Empty, or how the results of `instance`, which has just run the same problem, differ; or which
  // of its guards was overwritten.
  std::string check(const Instance& instance) const;

 private:
  std::string check_runs(const Instance& instance) const;

  std::vector<int64_t> rows_;      // those compared; empty: all
  std::vector<Sample::Run> runs_;  // of a sample; empty: rows
  Problem part_;                   // of these rows or runs alone
  std::vector<Tensor> want_;
};

// Both in one call.
std::string verify(const ProblemMaker& maker, RowKey key, const Instance& instance,
                   int64_t most_bytes);

}  // namespace tessera::bench
