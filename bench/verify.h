// Whether a device's results are the CPU's, within the bounds a problem states.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"

namespace tessera::bench {

// Empty where every element of `got` is within the operand's bound of `want`; else how many are
// not, with the worst one, both values and the bound. Two NaN agree. Both are whole storages, so
// gaps between rows are compared too.
std::string compare(const Operand& operand, const TensorView& got, const TensorView& want);

// Storages of all operands after a run on the CPU.
std::vector<Tensor> run_on_cpu(const Problem& problem);

// Holds what `instance` has just computed against the CPU, and looks at its guards. Problems of
// more than `most_bytes`, or of more arithmetic than a CPU does in seconds, whose rows are
// independent are held to 64 of their rows.
std::string verify(const ProblemMaker& maker, RowKey key, const Instance& instance,
                   int64_t most_bytes);

}  // namespace tessera::bench
