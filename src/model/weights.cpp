// Weights from slices of a checkpoint's tensors: read in blocks by all threads, converted or
// quantised and checked; those for a GPU are left to the upload.
// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
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

void check_options(const LoadOptions& options) {
  if (!is_float16_or_32(options.dtype)) {
    fail(concat("load_model: dtype is ", name(options.dtype), "; it must be f32, f16 or bf16"));
  }
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    fail(concat("load_model: rank is ", options.rank, " of ", options.num_ranks, " ranks"));
  }
}

// Calls body(row, count) for blocks of the slice's rows on all threads.
template <class Body>
void for_each_block(const Slice& slice, Body&& body) {
  const int64_t block_rows =
      std::clamp<int64_t>(kBlockElements / std::max<int64_t>(slice.num_cols, 1), 1, slice.num_rows);
  const int64_t num_blocks = (slice.num_rows + block_rows - 1) / block_rows;
  parallel_tasks(num_blocks, [&](int64_t block) {
    const int64_t row = block * block_rows;
    body(row, std::min(block_rows, slice.num_rows - row));
  });
}

}  // namespace

struct Weights::Shape {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  bool is_vector = false;
};

Weights::Weights(const LoadOptions& options, const WeightSource& source, const Weights& dry)
    : options_(options),
      source_(&source),
      pool_(options.device),
      total_bytes_(dry.read_bytes(source)) {
  check_options(options);
  if (options.on_progress) options.on_progress(0, total_bytes_);
  if (options.device.is_cpu()) return;
  pool_.reserve(dry.pool_.aligned_bytes());
  upload_ = std::make_unique<WeightUpload>(source, options.dtype, options.check_values);
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
    if (is_dry()) reads_.emplace_back(slice.spec, slice.num_elements());
  }
  return shape;
}

TensorView Weights::keep(Tensor tensor) {
  if (options_.device.is_cpu()) return pool_.keep(std::move(tensor));
  const TensorView& from = tensor.view();
  const TensorView to = from.rank == 1 ? pool_.make(from.dtype, {from.size(0)})
                                       : pool_.make(from.dtype, {from.size(0), from.size(1)});
  copy_bytes(to.data, to.device, from.data, from.device, static_cast<size_t>(tensor.size_bytes()));
  synchronize(to.device);
  return to;
}

TensorView Weights::dense(const std::string& name, const std::vector<Slice>& slices,
                          int64_t interleave) {
  const auto [num_rows, num_cols, is_vector] = note(slices);
  const DType dtype = options_.dtype;
  const TensorView view =
      is_vector ? pool_.make(dtype, {num_rows}) : pool_.make(dtype, {num_rows, num_cols});
  if (!is_dry()) {
    fill(TensorView::contiguous(view.data, dtype, {num_rows, num_cols}, view.device), slices,
         interleave);
  }
  by_name_[name] = {.values = view};
  return view;
}

void Weights::fill(const TensorView& matrix, const std::vector<Slice>& slices, int64_t interleave) {
  Placement place{.interleave = interleave, .num_slices = std::ssize(slices)};
  for (const Slice& slice : slices) {
    if (upload_ != nullptr) {
      upload_->add(slice, place, matrix);
    } else {
      SliceReader reader(*source_, slice, options_.dtype, options_.check_values);
      for_each_block(slice, [&](int64_t row, int64_t count) {
        if (place.is_run()) {
          reader.read(row, matrix.slice(0, place.row(row), place.row(row) + count));
        } else {
          const Tensor block(matrix.dtype, {count, slice.num_cols});
          reader.read(row, block);
          place.scatter(block, row, matrix);
        }
      });
      reader.finish();
      report(slice);
    }
    place.begin += slice.num_rows;
    ++place.slice;
  }
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
    SliceReader reader(*source_, slice, options_.dtype, options_.check_values);
    for_each_block(slice, [&](int64_t row, int64_t count) {
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
    reader.finish();
    report(slice);
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

int64_t Weights::read_bytes(const WeightSource& source) const {
  int64_t total = 0;
  for (const auto& [spec, num_elements] : reads_) {
    total += storage_bytes(source.native_dtype(spec, options_.dtype), num_elements);
  }
  return total;
}

void Weights::report(const Slice& slice) {
  read_bytes_ +=
      storage_bytes(source_->native_dtype(slice.spec, options_.dtype), slice.num_elements());
  if (options_.on_progress) options_.on_progress(read_bytes_, total_bytes_);
}

void Weights::finish() {
  if (upload_ != nullptr) {
    const int64_t least = upload_->least_buffer_bytes();
    if (options_.carrier == nullptr || options_.carrier->buffer_bytes() < least) {
      options_.carrier = make_carrier(options_.device, std::max(kStagingBytes, least));
    }
    upload_times_ = upload_->run(*options_.carrier, [&](int64_t done) {
      if (options_.on_progress) options_.on_progress(read_bytes_ + done, total_bytes_);
    });
    upload_.reset();
    options_.carrier.reset();
  }
  source_ = nullptr;
  if (options_.on_progress) options_.on_progress(total_bytes_, total_bytes_);
}

}  // namespace tessera::model
