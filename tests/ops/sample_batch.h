// Batches of sampling with settings of every kind, in CPU memory and on a GPU.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_check.h"
#include "tessera/ops/sample.h"

namespace tessera::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
TensorView view_of(std::vector<T>& values, DType type) {
  return TensorView::contiguous(values.data(), type, {static_cast<int64_t>(values.size())});
}

// A batch of rows, each with settings of its own, in CPU memory.
struct Batch {
  int64_t rows, vocab, stride, capacity;
  int64_t offset;  // floats before the first logit: 1 breaks the alignment of vectors
  std::vector<float> logits;
  std::vector<int32_t> tokens, top_k, sequences, positions, bias_starts, bias_tokens, slots;
  std::vector<int64_t> seeds;
  std::vector<float> temperature, typical_p, top_p, min_p, bias_values;
  std::vector<float> repetition, presence, frequency;
  std::vector<int32_t> seen_tokens, seen_counts, num_seen;
  std::vector<int32_t> masks, mask_rows;  // of batches with an odd number of rows

  Batch(std::mt19937_64& random, int64_t num_rows, int64_t width, bool is_odd)
      : rows(num_rows), vocab(width), stride(width), capacity(40), offset(0) {
    if (is_odd) stride += 5, offset = 1;
    const auto count = static_cast<size_t>(rows);
    logits.resize(static_cast<size_t>(offset + rows * stride), kNan);
    tokens.resize(count, 99);
    num_seen.resize(count);
    seen_tokens.resize(count * static_cast<size_t>(capacity), -5);
    seen_counts.resize(seen_tokens.size());
    bias_starts.push_back(0);
    for (int64_t row = 0; row < rows; ++row) add_row(random, row);
    for (int64_t row = 0; rows % 2 == 1 && row < rows; ++row) add_mask(random);
    bias_tokens.push_back(0);  // of no row
    bias_values.push_back(7.0f);
    std::shuffle(slots.begin(), slots.end(), random);
    for (int32_t& slot : slots) {
      if (random() % 4 == 0) slot = random() % 2 == 0 ? -1 : static_cast<int32_t>(rows) + slot;
    }
  }

  int64_t num_words() const { return (vocab + 31) / 32; }
  // Everything, about half, a few or nothing; one row in four has no mask, or one that is not
  // there.
  void add_mask(std::mt19937_64& random) {
    const auto kind = random() % 4;
    for (int64_t i = 0; i < num_words(); ++i) {
      const auto word = static_cast<uint32_t>(random());
      const uint32_t few = random() % 8 == 0 ? word & static_cast<uint32_t>(random()) : 0;
      masks.push_back(static_cast<int32_t>(kind == 0 ? ~0u : kind == 1 ? word : few));
    }
    const auto row = static_cast<int32_t>(random() % static_cast<uint64_t>(rows));
    mask_rows.push_back(random() % 4 != 0 ? row : random() % 2 == 0 ? -1 : row + 1000);
  }

  static float any(std::mt19937_64& random, std::initializer_list<double> choices) {
    return static_cast<float>(*(choices.begin() + random() % choices.size()));
  }
  float* row_of(int64_t row) { return logits.data() + offset + row * stride; }

  void add_row(std::mt19937_64& random, int64_t row) {
    fill_logits(random, row_of(row));
    temperature.push_back(any(random, {0, 0, 1e-6, 0.1, 0.7, 1, 1, 1, 2, 10, 1e20, -1, kNan}));
    top_k.push_back(
        static_cast<int32_t>(any(random, {0, 0, 0, -3, 1, 2, 20, 50, 255, 256, 257, 1000, 1e6})));
    typical_p.push_back(any(random, {1, 1, 1, 1, 0.01, 0.5, 0.95, 0.9999}));
    top_p.push_back(any(random, {1, 1, 0, 1e-6, 0.1, 0.5, 0.9, 0.99, 0.9999999, kNan}));
    min_p.push_back(any(random, {0, 0, 0, 1e-9, 0.01, 0.3, 1, 2}));
    seeds.push_back(static_cast<int64_t>(random()));
    sequences.push_back(static_cast<int32_t>(random() % 5));
    positions.push_back(static_cast<int32_t>(random() % 100000));
    repetition.push_back(any(random, {1, 1, 0.7, 1.3, 10}));
    presence.push_back(any(random, {0, 0, 0.5, -1.5}));
    frequency.push_back(any(random, {0, 0, 0.2, -0.7}));
    slots.push_back(static_cast<int32_t>(row));
    for (const int32_t token : different_tokens(random, random() % 3 == 0 ? 12 : 0)) {
      bias_tokens.push_back(token);
      bias_values.push_back(any(random, {0, 1, -1, 3.3, 99, 500, -500, -kInfinity, kNan}));
    }
    bias_starts.push_back(static_cast<int32_t>(bias_tokens.size()));
    const auto list = static_cast<size_t>(row * capacity);
    const auto seen = different_tokens(random, random() % 2 == 0 ? 38 : 3);
    for (size_t i = 0; i < seen.size(); ++i) {
      seen_tokens[list + i] = seen[i];
      const auto generated = static_cast<int32_t>(random() % 9);
      seen_counts[list + i] = generated + (random() % 3 == 0 ? kSampleInPrompt : 0);
    }
    num_seen[static_cast<size_t>(row)] = static_cast<int32_t>(seen.size());
    if (random() % 16 == 0) num_seen[static_cast<size_t>(row)] = 1000;  // more than there is room
  }

  // Up to `count` different ones, some outside the vocabulary.
  std::vector<int32_t> different_tokens(std::mt19937_64& random, size_t count) const {
    std::vector<int32_t> list;
    while (list.size() < count && static_cast<int64_t>(list.size()) < vocab) {
      const auto token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab + 2)) - 1;
      if (std::ranges::find(list, token) == list.end()) list.push_back(token);
    }
    return list;
  }

  void fill_logits(std::mt19937_64& random, float* row) const {
    std::normal_distribution<float> normal(any(random, {0, 0, 12}), any(random, {0.01, 1, 1, 4}));
    const auto kind = random() % 8;
    for (int64_t i = 0; i < vocab; ++i) {
      const float value = normal(random);
      row[i] = kind == 0 ? std::round(value) : kind == 1 ? 2.5f : value;
      if (kind == 2 && random() % 3 != 0) row[i] = -kInfinity;
      if (kind == 3) row[i] = value * 1e37f;
    }
    const auto broken = random() % 24;
    float& some = row[random() % static_cast<uint64_t>(vocab)];
    if (broken == 0) some = kNan;
    if (broken == 1) some = kInfinity;
    if (broken == 2) std::fill_n(row, vocab, -kInfinity);
    if (broken == 3) some = 30.0f;  // alone far above the rest
  }

  SampleArgs args() {
    SampleArgs args{.logits = TensorView::contiguous(row_of(0), DType::f32, {rows, vocab}),
                    .tokens = view_of(tokens, DType::i32),
                    .temperature = view_of(temperature, DType::f32),
                    .top_k = view_of(top_k, DType::i32),
                    .typical_p = view_of(typical_p, DType::f32),
                    .top_p = view_of(top_p, DType::f32),
                    .min_p = view_of(min_p, DType::f32),
                    .seeds = view_of(seeds, DType::i64),
                    .sequences = view_of(sequences, DType::i32),
                    .positions = view_of(positions, DType::i32),
                    .bias_starts = view_of(bias_starts, DType::i32),
                    .bias_tokens = view_of(bias_tokens, DType::i32),
                    .bias_values = view_of(bias_values, DType::f32),
                    .slots = view_of(slots, DType::i32),
                    .seen_tokens = view_of(seen_tokens, DType::i32),
                    .seen_counts = view_of(seen_counts, DType::i32),
                    .num_seen = view_of(num_seen, DType::i32),
                    .repetition = view_of(repetition, DType::f32),
                    .presence = view_of(presence, DType::f32),
                    .frequency = view_of(frequency, DType::f32)};
    args.logits.strides[0] = stride;
    if (!masks.empty()) {
      args.masks = TensorView::contiguous(masks.data(), DType::i32, {rows, num_words()});
      args.mask_rows = view_of(mask_rows, DType::i32);
    }
    for (TensorView* list : {&*args.seen_tokens, &*args.seen_counts}) {
      *list = TensorView::contiguous(list->data, DType::i32, {rows, capacity});
    }
    return args;
  }
};

// The tensors of a batch on the GPU: args() gives the same call there.
class DeviceBatch {
 public:
  explicit DeviceBatch(Batch& host) : host_(host) { upload(); }

  SampleArgs args() {
    SampleArgs args = host_.args();
    each(args, [&](TensorView& view) {
      const Copy& copy = copies_.at(key_of(view));
      view.data = copy.device.view().as<char>() + (static_cast<char*>(view.data) - copy.host);
      view.device = cuda_device();
    });
    return args;
  }
  // Writes the host's values to the same addresses.
  void upload() {
    for (const auto& [data, bytes] : storages()) {
      const TensorView from =
          TensorView::contiguous(data, DType::u8, {static_cast<int64_t>(bytes)});
      const auto it = copies_.find(data);
      if (it == copies_.end()) {
        Tensor made(DType::u8, {static_cast<int64_t>(bytes)}, cuda_device());
        copies_.emplace(data, Copy{static_cast<char*>(data), std::move(made)});
      }
      copy_to_device(from, copies_.at(data).device.view());
    }
  }
  // The bytes of what the host keeps at `data`.
  std::string bytes_of(const void* data) const {
    const Tensor host = copies_.at(data).device.to(cpu_device());
    return {host.view().as<char>(), static_cast<size_t>(host.size_bytes())};
  }

 private:
  struct Copy {
    char* host;
    Tensor device;
  };

  template <class F>
  static void each(SampleArgs& args, const F& f) {
    f(args.logits);
    f(args.tokens);
    for (std::optional<TensorView>* view :
         {&args.temperature, &args.top_k,       &args.typical_p,   &args.top_p,
          &args.min_p,       &args.seeds,       &args.sequences,   &args.positions,
          &args.bias_starts, &args.bias_tokens, &args.bias_values, &args.slots,
          &args.seen_tokens, &args.seen_counts, &args.num_seen,    &args.repetition,
          &args.presence,    &args.frequency,   &args.masks,       &args.mask_rows}) {
      if (*view) f(**view);
    }
  }
  // The start of the storage that a view of the host lies in.
  const void* key_of(const TensorView& view) const {
    return view.data == host_.logits.data() + host_.offset ? host_.logits.data() : view.data;
  }
  std::vector<std::pair<void*, size_t>> storages() {
    std::vector<std::pair<void*, size_t>> all{
        {host_.logits.data(), host_.logits.size() * sizeof(float)}};
    SampleArgs args = host_.args();
    each(args, [&](TensorView& view) {
      if (key_of(view) == host_.logits.data()) return;
      const auto bytes = storage_bytes(view.dtype, view.num_elements());
      all.emplace_back(view.data, static_cast<size_t>(bytes));
    });
    return all;
  }
  static void copy_to_device(const TensorView& from, const TensorView& to) {
    if (from.num_elements() == 0) return;
    cuda_check(cudaMemcpy(to.data, from.data, static_cast<size_t>(from.num_elements()),
                          cudaMemcpyHostToDevice),
               "cudaMemcpy");
  }

  Batch& host_;
  std::map<const void*, Copy> copies_;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace tessera::testing
