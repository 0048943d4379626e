// Operands cut out of poisoned storage.
// SPDX-License-Identifier: MIT
#include "bench/problems/builder.h"

#include <algorithm>
#include <cstring>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {

Builder::Builder(const Shape& shape, Fill fill, uint64_t seed,
                 std::initializer_list<std::string_view> names) {
  problem_.shape = shape;
  problem_.fill = fill;
  problem_.seed = seed;
  problem_.operands.reserve(24);  // references handed out stay valid
  for (const auto& [name, value] : shape) {
    if (std::ranges::find(names, name) != names.end()) continue;
    std::string known;
    for (const std::string_view n : names) known += concat(known.empty() ? "" : ", ", n);
    fail(concat("problem: shape has no size or option \"", name, "\"; known: ", known));
  }
}

Operand& Builder::strided(std::string_view name, Role role, DType dtype, std::vector<int64_t> shape,
                          std::vector<int64_t> strides, int64_t num_storage, Bound bound) {
  const int64_t offset = get("offset");
  Operand operand;
  operand.name = name;
  operand.role = role;
  problem_.storage_bytes += tessera::storage_bytes(dtype, num_storage + offset);
  operand.host = Tensor(dtype, {problem_.fill == Fill::none ? 0 : num_storage + offset});
  operand.bound = bound;
  operand.shape = std::move(shape);
  operand.strides = std::move(strides);
  operand.offset = offset;
  if (operand.host.size_bytes() > 0) {
    std::memset(operand.host.view().data, poison_byte(dtype),
                static_cast<size_t>(operand.host.size_bytes()));
  }
  return problem_.operands.emplace_back(std::move(operand));
}

Operand& Builder::rows(std::string_view name, Role role, DType dtype, int64_t num_rows,
                       int64_t num_cols, Bound bound) {
  const int64_t stride = get("stride") == 0 ? num_cols : get("stride");
  if (stride < num_cols) fail(concat("problem: stride is ", stride, ", columns are ", num_cols));
  Operand& operand =
      strided(name, role, dtype, {num_rows, num_cols}, {stride, 1}, num_rows * stride, bound);
  operand.is_per_row = true;
  return operand;
}

Operand& Builder::dense(std::string_view name, Role role, DType dtype, std::vector<int64_t> shape,
                        Bound bound) {
  std::vector<int64_t> strides(shape.size());
  int64_t count = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = count;
    count *= shape[d];
  }
  return strided(name, role, dtype, std::move(shape), std::move(strides), count, bound);
}

double Builder::operand_bytes() const {
  double bytes = 0;
  for (const Operand& operand : problem_.operands) {
    if (operand.role == Role::scratch) continue;
    int64_t count = 1;
    for (const int64_t size : operand.shape) count *= size;
    const auto once = static_cast<double>(storage_bytes(operand.host.view().dtype, count));
    bytes += operand.role == Role::in_out ? 2 * once : once;
  }
  return bytes;
}

Problem Builder::finish(decltype(Problem::call) call, double flops, std::string_view row_dim) {
  problem_.call = std::move(call);
  problem_.bytes = operand_bytes();
  problem_.flops = flops;
  problem_.row_dim = row_dim;
  is_finished_ = true;
  return std::move(problem_);
}

}  // namespace tessera::bench
