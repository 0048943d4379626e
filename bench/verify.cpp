// Element by element comparison with the CPU's results.
// SPDX-License-Identifier: MIT
#include "bench/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <sstream>

#include "bench/problems/builder.h"
#include "core/parallel.h"
#include "tessera/core/convert.h"

namespace tessera::bench {
namespace {

constexpr int64_t kSampledRows = 64;
constexpr double kMostFlops = 5e10;  // what a CPU does in a second or so

double value_at(const TensorView& view, int64_t i) {
  switch (view.dtype) {
    case DType::f32: return view.as<float>()[i];
    case DType::f16: return to_float(view.as<F16>()[i]);
    case DType::bf16: return to_float(view.as<Bf16>()[i]);
    case DType::e4m3: return to_float(view.as<E4m3>()[i]);
    case DType::e5m2: return to_float(view.as<E5m2>()[i]);
    case DType::i8: return view.as<int8_t>()[i];
    case DType::u8: return view.as<uint8_t>()[i];
    case DType::i4: return (view.as<uint8_t>()[i / 2] >> (i % 2 * 4)) & 15;
    case DType::i32: return view.as<int32_t>()[i];
    case DType::i64: return static_cast<double>(view.as<int64_t>()[i]);
  }
  return 0;
}

bool same_bits(const TensorView& a, const TensorView& b, int64_t i) {
  if (a.dtype == DType::i4) return value_at(a, i) == value_at(b, i);
  const auto width = static_cast<size_t>(storage_bytes(a.dtype, 1));
  const int64_t at = i * static_cast<int64_t>(width);
  return std::memcmp(a.as<char>() + at, b.as<char>() + at, width) == 0;
}

// The index of a code among the type's sorted values, so that neighbours differ by one.
int order_of(const TensorView& view, int64_t i) {
  if (view.dtype == DType::e4m3 || view.dtype == DType::e5m2) {
    const int bits = view.as<uint8_t>()[i];
    return (bits & 0x80) != 0 ? -(bits & 0x7f) : bits;
  }
  int value = static_cast<int>(value_at(view, i));
  if (view.dtype == DType::i4 && value > 7) value -= 16;
  return value;
}

// 0 if the elements agree within the bound; otherwise their difference divided by the bound.
double excess(const Operand& operand, const TensorView& got, const TensorView& want, int64_t i) {
  if (same_bits(got, want, i)) return 0;
  const double g = value_at(got, i), w = value_at(want, i);
  if (std::isnan(g) && std::isnan(w)) return 0;
  if (!std::isfinite(g) || !std::isfinite(w)) return std::numeric_limits<double>::infinity();
  const double allowed = operand.bound.absolute + operand.bound.relative * std::abs(w);
  const double apart = std::abs(g - w);
  if (apart <= allowed && allowed > 0) return 0;  // if bits must agree, -0 is not 0
  if (operand.bound.steps > 0) {
    const int steps = std::abs(order_of(got, i) - order_of(want, i));
    // Unsigned nibbles are compared as unsigned: read as signed, 7 and 8 would be far apart.
    const int nibbles = got.dtype == DType::i4 ? static_cast<int>(apart) : steps;
    if (std::min(steps, nibbles) <= operand.bound.steps) return 0;
  }
  return allowed > 0 ? apart / allowed : std::numeric_limits<double>::max();
}

// How many elements are wrong, and the worst; of several the first, in any order of adding them.
struct Mistakes {
  int64_t count = 0;
  double excess = 0;  // of the worst
  int64_t index = -1;

  void add(const Mistakes& others) {
    if (others.count == 0) return;
    const bool is_worse = others.excess > excess;
    if (count == 0 || is_worse || (others.excess == excess && others.index < index)) {
      excess = others.excess;
      index = others.index;
    }
    count += others.count;
  }
};

}  // namespace

std::string compare(const Operand& operand, const TensorView& got, const TensorView& want) {
  const int64_t count = want.num_elements();
  if (count == 0) return {};
  const auto num_bytes = static_cast<size_t>(storage_bytes(want.dtype, count));
  if (std::memcmp(got.data, want.data, num_bytes) == 0) return {};
  Mistakes all;
  std::mutex mutex;
  parallel_shares(count, items_in_run(count, 1), [&](Share& share) {
    Mistakes mine;
    while (share.next()) {
      for (int64_t i = share.begin(); i < share.end(); ++i) {
        if (const double over = excess(operand, got, want, i); over != 0) mine.add({1, over, i});
      }
    }
    const std::lock_guard lock(mutex);
    all.add(mine);
  });
  if (all.count == 0) return {};
  std::ostringstream text;
  text.precision(9);
  text << operand.name << ": " << all.count << " of " << count
       << " elements are wrong; the worst, ";
  const int64_t place = all.index - operand.offset;
  const int64_t stride = operand.strides.empty() ? 0 : operand.strides[0];
  if (place < 0) {
    text << place << " before the first";
  } else if (operand.shape.size() >= 2 && stride > 0) {
    text << "row " << place / stride << " column " << place % stride;
  } else {
    text << "element " << place;
  }
  text << ", is " << value_at(got, all.index) << ", should be " << value_at(want, all.index)
       << " within " << operand.bound.absolute << " + " << operand.bound.relative << " relative + "
       << operand.bound.steps << " steps";
  return text.str();
}

std::vector<Tensor> run_on_cpu(const Problem& problem) {
  Instance instance(problem, cpu_device());
  instance.reset();
  instance.run(0, {});
  std::vector<Tensor> storages;
  for (size_t i = 0; i < problem.operands.size(); ++i) storages.push_back(instance.download(i));
  return storages;
}

Reference::Reference(const ProblemMaker& maker, RowKey key, const Problem& problem,
                     int64_t most_bytes) {
  const int64_t num_rows = problem.row_dim.empty() ? 0 : value_of(problem.shape, problem.row_dim);
  const bool is_large = Instance::set_bytes(problem) > most_bytes || problem.flops > kMostFlops;
  if (is_large && problem.sample) {
    Sample sample = problem.sample(problem);
    part_ = std::move(sample.part);
    runs_ = std::move(sample.runs);
  } else if (is_large && num_rows > kSampledRows) {
    const Random random{problem.seed};
    for (int64_t i = 0; i < kSampledRows; ++i) {
      rows_.push_back(i == 0 ? 0 : i == 1 ? num_rows - 1 : random.integer(i, 0, num_rows - 1));
    }
    part_ = take_rows(maker, key, problem, rows_);
  }
  want_ = run_on_cpu(rows_.empty() && runs_.empty() ? problem : part_);
}

std::string Reference::check_runs(const Instance& instance) const {
  for (size_t to = 0; to < part_.operands.size(); ++to) {
    const Operand& operand = part_.operands[to];
    if (operand.role == Role::input || operand.role == Role::scratch) continue;
    const Tensor got = want_[to].to(cpu_device());
    Tensor whole;
    size_t loaded = instance.problem().operands.size();  // no operand yet
    for (const Sample::Run& run : runs_) {
      if (run.to_operand != to) continue;
      if (loaded != run.from_operand) whole = instance.download(loaded = run.from_operand);
      const DType dtype = got.view().dtype;
      std::memcpy(got.view().as<char>() + storage_bytes(dtype, run.to),
                  whole.view().as<char>() + storage_bytes(dtype, run.from),
                  static_cast<size_t>(storage_bytes(dtype, run.count)));
    }
    std::string wrong = compare(operand, got, want_[to]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string Reference::check(const Instance& instance) const {
  if (std::string damage = instance.damage(); !damage.empty()) return damage;
  if (!runs_.empty()) return check_runs(instance);
  const bool is_sampled = !rows_.empty();
  const Problem& held = is_sampled ? part_ : instance.problem();
  for (size_t i = 0; i < held.operands.size(); ++i) {
    // Inputs are compared too: an operation must not write to them.
    const Operand& operand = held.operands[i];
    if ((is_sampled && !operand.is_per_row) || operand.role == Role::scratch) continue;
    const Tensor got = is_sampled ? instance.download_rows(i, rows_) : instance.download(i);
    std::string wrong = compare(operand, got, want_[i]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

std::string verify(const ProblemMaker& maker, RowKey key, const Instance& instance,
                   int64_t most_bytes) {
  return Reference(maker, key, instance.problem(), most_bytes).check(instance);
}

}  // namespace tessera::bench
