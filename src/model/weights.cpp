// Weights from slices of a checkpoint's tensors: read in blocks by all threads, converted or
// quantised, checked, and moved to the device.
// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"

namespace tessera::model {
namespace {

// A block is read and converted by one thread; large enough that starting it costs nothing.
constexpr int64_t kBlockElements = 1 << 18;

bool is_finite(float value) { return std::isfinite(value); }
bool is_finite(F16 value) { return (value.bits & 0x7c00u) != 0x7c00u; }
bool is_finite(Bf16 value) { return (value.bits & 0x7f80u) != 0x7f80u; }

template <class T>
int64_t first_not_finite(const TensorView& values) {
  const T* data = values.as<T>();
  const T* end = data + values.num_elements();
  const T* found = std::find_if(data, end, [](T value) { return !is_finite(value); });
  return found == end ? -1 : found - data;
}

// The place in a contiguous block, or -1.
int64_t find_not_finite(const TensorView& values) {
  if (values.dtype == DType::f16) return first_not_finite<F16>(values);
  if (values.dtype == DType::bf16) return first_not_finite<Bf16>(values);
  return first_not_finite<float>(values);
}

void check_options(const LoadOptions& options) {
  if (!is_float16_or_32(options.dtype)) {
    fail(concat("load_model: dtype is ", name(options.dtype), "; it must be f32, f16 or bf16"));
  }
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    fail(concat("load_model: rank is ", options.rank, " of ", options.num_ranks, " ranks"));
  }
}

// Where the rows of slice number `slice` go in the tensor made of all of them.
struct Placement {
  int64_t begin = 0;       // where a slice's rows begin, if they stay together
  int64_t interleave = 0;  // otherwise: rows taken from each slice in turn
  int64_t slice = 0;
  int64_t num_slices = 1;

  bool is_run() const { return interleave == 0; }
  int64_t row(int64_t row) const {
    if (is_run()) return begin + row;
    return row / interleave * interleave * num_slices + slice * interleave + row % interleave;
  }
  // Rows from `first` on, of a contiguous block, to their places in `to`.
  void scatter(const TensorView& block, int64_t first, const TensorView& to) const {
    const auto row_bytes = static_cast<size_t>(
        storage_bytes(block.dtype, block.num_elements() / std::max<int64_t>(1, block.size(0))));
    for (int64_t i = 0; i < block.size(0); ++i) {
      std::memcpy(to.as<std::byte>() + row(first + i) * static_cast<int64_t>(row_bytes),
                  block.as<std::byte>() + i * static_cast<int64_t>(row_bytes), row_bytes);
    }
  }
};

}  // namespace

struct Weights::Shape {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  bool is_vector = false;
};

// Reads one slice, block by block.
class Weights::Reader {
 public:
  Reader(const WeightSource& source, const LoadOptions& options, const Slice& slice)
      : source_(source), options_(options), slice_(slice) {}

  // Calls body(row, count) for blocks of the slice's rows on all threads, then refuses the first
  // value that was found not to be finite.
  template <class Body>
  void for_each_block(Body&& body) {
    const int64_t block_rows = std::clamp<int64_t>(
        kBlockElements / std::max<int64_t>(slice_.num_cols, 1), 1, slice_.num_rows);
    const int64_t num_blocks = (slice_.num_rows + block_rows - 1) / block_rows;
    parallel_tasks(num_blocks, [&](int64_t block) {
      const int64_t row = block * block_rows;
      body(row, std::min(block_rows, slice_.num_rows - row));
    });
    if (not_finite_ >= 0) refuse_not_finite();
  }

  void read(int64_t row, const TensorView& to) {
    if (slice_.offset == 0.0f) {
      source_.read(slice_.spec, slice_.row + row, slice_.col, to);
    } else {
      const Tensor floats(DType::f32, {to.size(0), to.size(1)});
      source_.read(slice_.spec, slice_.row + row, slice_.col, floats);
      float* values = floats.view().as<float>();
      for (int64_t i = 0; i < to.num_elements(); ++i) values[i] += slice_.offset;
      convert(floats, to);
    }
    if (options_.check_values) check_finite(row, to);
  }

  DType stored_dtype() const { return source_.dtype_of(slice_.spec); }

  // Notes the first value of a block that is not finite; `row` is the block's first.
  void check_finite(int64_t row, const TensorView& values) {
    const int64_t found = find_not_finite(values);
    if (found < 0) return;
    const int64_t place = row * slice_.num_cols + found;
    // The first of all blocks, so that the message does not depend on threads.
    int64_t known = not_finite_;
    while ((known < 0 || place < known) && !not_finite_.compare_exchange_weak(known, place)) {
    }
  }

 private:
  [[noreturn]] void refuse_not_finite() const {
    const int64_t row = slice_.row + not_finite_ / slice_.num_cols;
    const int64_t col = slice_.col + not_finite_ % slice_.num_cols;
    const Tensor value(DType::f32, {1, 1});
    source_.read(slice_.spec, row, col, value);
    const float stored = *value.view().as<float>();
    const std::string place =
        slice_.spec.is_vector ? concat("[", row, "]") : concat("[", row, ", ", col, "]");
    const std::string why = std::isfinite(stored)
                                ? concat("beyond the range of ", name(options_.dtype),
                                         "; load the model as bf16 or f32")
                                : std::string("not finite; the checkpoint is damaged");
    fail(concat("checkpoint: tensor '", slice_.spec.name, "' holds ", stored, " at ", place,
                ", which is ", why));
  }

  const WeightSource& source_;
  const LoadOptions& options_;
  const Slice& slice_;
  std::atomic<int64_t> not_finite_ = -1;  // row * num_cols + col, within the slice
};

Weights::Weights(const LoadOptions& options, const WeightSource& source, int64_t total_bytes)
    : options_(options), source_(&source), pool_(options.device), total_bytes_(total_bytes) {
  check_options(options);
}

Weights::Weights(const LoadOptions& options)
    : options_(options), pool_(options.device, DryRegion::weights) {
  check_options(options);
}

int64_t Weights::share(std::string_view what, int64_t size) const {
  if (size % options_.num_ranks != 0) {
    fail(concat("load_model: ", what, " is ", size, " and cannot be shared by ", options_.num_ranks,
                " ranks; use a number of ranks that divides it"));
  }
  return size / options_.num_ranks;
}

Weights::Shape Weights::note(const std::vector<Slice>& slices) {
  Shape shape{.num_rows = 0,
              .num_cols = slices.front().num_cols,
              .is_vector = slices.front().spec.is_vector};
  for (const Slice& slice : slices) {
    shape.num_rows += slice.num_rows;
    mention(slice.spec);
    if (is_dry()) read_bytes_ += 2 * slice.num_rows * slice.num_cols;
  }
  return shape;
}

TensorView Weights::keep(Tensor tensor) {
  return pool_.keep(options_.device.is_cpu() ? std::move(tensor) : tensor.to(options_.device));
}

TensorView Weights::dense(const std::string& name, const std::vector<Slice>& slices,
                          int64_t interleave) {
  const auto [num_rows, num_cols, is_vector] = note(slices);
  const DType dtype = options_.dtype;
  TensorView view;
  if (is_dry()) {
    view = is_vector ? pool_.make(dtype, {num_rows}) : pool_.make(dtype, {num_rows, num_cols});
  } else {
    Tensor made = is_vector ? Tensor(dtype, {num_rows}) : Tensor(dtype, {num_rows, num_cols});
    const TensorView matrix = TensorView::contiguous(made.view().data, dtype, {num_rows, num_cols});
    Placement place{.interleave = interleave, .num_slices = std::ssize(slices)};
    for (const Slice& slice : slices) {
      Reader reader(*source_, options_, slice);
      reader.for_each_block([&](int64_t row, int64_t count) {
        if (place.is_run()) {
          reader.read(row, matrix.slice(0, place.row(row), place.row(row) + count));
        } else {
          const Tensor block(dtype, {count, num_cols});
          reader.read(row, block);
          place.scatter(block, row, matrix);
        }
      });
      report(2 * slice.num_rows * slice.num_cols);
      place.begin += slice.num_rows;
      ++place.slice;
    }
    view = keep(std::move(made));
  }
  by_name_[name] = {.values = view};
  return view;
}

// Codes are made from the values as stored, not from values rounded to the model's dtype first.
LinearWeight Weights::linear(const std::string& name, const std::vector<Slice>& slices,
                             int64_t interleave) {
  if (options_.format == WeightFormat::plain) return {dense(name, slices, interleave)};
  const auto [num_rows, num_cols, is_vector] = note(slices);
  LinearWeight& made = by_name_[name];
  if (is_dry()) {
    return made = {pool_.make(DType::i8, {num_rows, num_cols}), pool_.make(DType::f32, {num_rows})};
  }
  Tensor codes(DType::i8, {num_rows, num_cols});
  Tensor scale(DType::f32, {num_rows});
  Placement place{.interleave = interleave, .num_slices = std::ssize(slices)};
  for (const Slice& slice : slices) {
    Reader reader(*source_, options_, slice);
    reader.for_each_block([&](int64_t row, int64_t count) {
      const Tensor values(reader.stored_dtype(), {count, num_cols});
      reader.read(row, values);
      const Tensor block_codes(DType::i8, {count, num_cols});
      const Tensor block_scale(DType::f32, {count, 1});
      quantize({.x = values, .out = block_codes, .scale = block_scale.view()});
      // Codes cannot show what is not finite, so it is refused here, asked for or not. The scales
      // tell: that of a row with such a value is NaN.
      if (find_not_finite(block_scale) >= 0) reader.check_finite(row, values);
      place.scatter(block_codes, row, codes);
      place.scatter(block_scale, row, scale);
    });
    report(2 * slice.num_rows * slice.num_cols);
    place.begin += slice.num_rows;
    ++place.slice;
  }
  return made = {keep(std::move(codes)), keep(std::move(scale))};
}

void Weights::mention(const TensorSpec& spec) {
  if (spec_names_.insert(spec.name).second) specs_.push_back(spec);
}

const LinearWeight& Weights::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail(concat("Weights: there is no weight '", shown(name), "'"));
  return found->second;
}

int64_t Weights::num_parameters() const {
  int64_t total = 0;
  for (const TensorSpec& spec : specs_) total += spec.num_rows * spec.num_cols;
  return total;
}

void Weights::report(int64_t bytes) {
  read_bytes_ += bytes;
  if (options_.on_progress) {
    options_.on_progress(std::min(read_bytes_, total_bytes_), total_bytes_);
  }
}

void Weights::report_done() {
  source_ = nullptr;
  if (options_.on_progress) options_.on_progress(total_bytes_, total_bytes_);
}

}  // namespace tessera::model
