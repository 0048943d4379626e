// Sampling on a GPU chooses the CPU's tokens, bit for bit: thousands of random settings, mixed in
// one batch, and a captured call that serves settings it was not captured with.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/library.h"
#include "ops/registry.h"
#include "tessera/ops/sample.h"
#include "tests/gpu.h"
#include "tests/ops/graph_capture.h"

namespace tessera::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
    std::shuffle(slots.begin(), slots.end(), random);
    for (int32_t& slot : slots) {
      if (random() % 4 == 0) slot = random() % 2 == 0 ? -1 : static_cast<int32_t>(rows) + slot;
    }
  }

  static float any(std::mt19937_64& random, std::initializer_list<double> choices) {
    return static_cast<float>(*(choices.begin() + random() % choices.size()));
  }
  float* row_of(int64_t row) { return logits.data() + offset + row * stride; }

  void add_row(std::mt19937_64& random, int64_t row) {
    fill_logits(random, row_of(row));
    temperature.push_back(any(random, {0, 0, 1e-6, 0.1, 0.7, 1, 1, 1, 2, 10, 1e20, -1, kNan}));
    top_k.push_back(static_cast<int32_t>(
        any(random, {0, 0, 0, -3, 1, 2, 20, 50, 255, 256, 257, 1000, 1e6})));
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
         {&args.temperature, &args.top_k, &args.typical_p, &args.top_p, &args.min_p, &args.seeds,
          &args.sequences, &args.positions, &args.bias_starts, &args.bias_tokens,
          &args.bias_values, &args.slots, &args.seen_tokens, &args.seen_counts, &args.num_seen,
          &args.repetition, &args.presence, &args.frequency}) {
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

class SampleOnGpu : public GpuTest {
 protected:
  // The rows of an operation that run here.
  static std::vector<std::string> rows_of(std::string_view op) {
    std::vector<std::string> names;
    for (const ops::RowInfo& row : ops::all_rows()) {
      const int capability = device_info(cuda_device()).compute_capability;
      if (row.op == op && runs_on(row.library, capability)) names.emplace_back(row.name);
    }
    return names;
  }

  // Runs a batch on the GPU and on the CPU and compares everything that is written.
  static void expect_same(Batch& batch, const std::string& row) {
    DeviceBatch device(batch);
    sample(device.args(), {.row = row});
    synchronize(cuda_device());
    const std::string before = bytes_of(batch.logits);
    EXPECT_EQ(device.bytes_of(batch.logits.data()) == before, true) << "the logits have changed";
    const std::string tokens = device.bytes_of(batch.tokens.data());
    const std::string seen_tokens = device.bytes_of(batch.seen_tokens.data());
    const std::string seen_counts = device.bytes_of(batch.seen_counts.data());
    const std::string num_seen = device.bytes_of(batch.num_seen.data());
    Batch want = batch;
    sample(want.args());
    for (int64_t r = 0; r < batch.rows; ++r) {
      const auto i = static_cast<size_t>(r);
      int32_t token;
      std::memcpy(&token, tokens.data() + i * sizeof token, sizeof token);
      EXPECT_EQ(token, want.tokens[i])
          << "row " << r << ": temperature " << batch.temperature[i] << " top_k " << batch.top_k[i]
          << " typical_p " << batch.typical_p[i] << " top_p " << batch.top_p[i] << " min_p "
          << batch.min_p[i] << " seed " << batch.seeds[i];
    }
    EXPECT_TRUE(seen_tokens == bytes_of(want.seen_tokens));
    EXPECT_TRUE(seen_counts == bytes_of(want.seen_counts));
    EXPECT_TRUE(num_seen == bytes_of(want.num_seen));
  }
};

TEST_F(SampleOnGpu, ChoosesTheTokensOfTheCpu) {
  for (const std::string& row : rows_of("sample")) {
    std::mt19937_64 random(17);
    int num_rows = 0;
    for (int trial = 0; trial < 160; ++trial) {
      constexpr int64_t kVocabs[] = {1, 2, 7, 100, 511, 1000, 2049, 4096, 8191, 20000};
      constexpr int64_t kRows[] = {1, 3, 17, 40, 70};
      const int64_t vocab = kVocabs[random() % std::size(kVocabs)];
      Batch batch(random, kRows[random() % std::size(kRows)], vocab, trial % 3 == 0);
      SCOPED_TRACE(row + " trial " + std::to_string(trial) + ": " + std::to_string(batch.rows) +
                   " rows of " + std::to_string(vocab));
      expect_same(batch, row);
      num_rows += static_cast<int>(batch.rows);
      if (HasFailure()) return;
    }
    EXPECT_GT(num_rows, 3000);
  }
}

TEST_F(SampleOnGpu, ChoosesTheTokensOfTheCpuInLargeVocabularies) {
  for (const std::string& row : rows_of("sample")) {
    std::mt19937_64 random(18);
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{1, 1 << 20},
                                      {2, 300001},
                                      {12, 128256},
                                      {64, 128256},
                                      {140, 32000},
                                      {30, 151936},
                                      {20, 50257}}) {
      Batch batch(random, rows, vocab, false);
      SCOPED_TRACE(row + ": " + std::to_string(rows) + " rows of " + std::to_string(vocab));
      expect_same(batch, row);
    }
  }
}

TEST_F(SampleOnGpu, AnAbsentSettingHasItsDefault) {
  std::mt19937_64 random(19);
  Batch batch(random, 9, 3000, false);
  DeviceBatch device(batch);
  const SampleArgs on_gpu{.logits = device.args().logits, .tokens = device.args().tokens};
  const SampleArgs on_cpu{.logits = batch.args().logits, .tokens = batch.args().tokens};
  sample(on_gpu);
  const std::string tokens = device.bytes_of(batch.tokens.data());
  sample(on_cpu);
  EXPECT_EQ(tokens, bytes_of(batch.tokens));
}

// A graph is captured once and serves every step: what differs is in device memory.
TEST_F(SampleOnGpu, ACapturedCallServesOtherSettings) {
  std::mt19937_64 random(20);
  Batch batch(random, 24, 6000, false);
  DeviceBatch device(batch);
  const OwnStream stream;
  Graph graph(stream, [&] { sample(device.args(), {.stream = stream.get()}); });
  graph.instantiate();
  for (int step = 0; step < 20; ++step) {
    std::shuffle(batch.temperature.begin(), batch.temperature.end(), random);
    std::shuffle(batch.top_k.begin(), batch.top_k.end(), random);
    std::shuffle(batch.typical_p.begin(), batch.typical_p.end(), random);
    std::shuffle(batch.top_p.begin(), batch.top_p.end(), random);
    std::shuffle(batch.min_p.begin(), batch.min_p.end(), random);
    std::shuffle(batch.repetition.begin(), batch.repetition.end(), random);
    std::shuffle(batch.slots.begin(), batch.slots.end(), random);
    for (int64_t row = 0; row < batch.rows; ++row) batch.fill_logits(random, batch.row_of(row));
    device.upload();
    graph.replay(stream);
    stream.wait();
    sample(batch.args());
    EXPECT_EQ(device.bytes_of(batch.tokens.data()), bytes_of(batch.tokens)) << "step " << step;
    EXPECT_EQ(device.bytes_of(batch.seen_counts.data()), bytes_of(batch.seen_counts)) << step;
    EXPECT_EQ(device.bytes_of(batch.num_seen.data()), bytes_of(batch.num_seen)) << step;
  }
}

// --- log-probabilities ------------------------------------------------------------------------

struct Logprobs {
  std::vector<float> logprobs, top_logprobs;
  std::vector<int32_t> top_tokens;
};

Logprobs logprobs_on(Device where, std::vector<float>& logits, std::vector<int32_t>& tokens,
                     int64_t top, const std::string& row) {
  const auto rows = static_cast<int64_t>(tokens.size());
  const auto vocab = static_cast<int64_t>(logits.size()) / rows;
  Tensor x(DType::f32, {rows, vocab}), ids(DType::i32, {rows});
  std::ranges::copy(logits, x.view().as<float>());
  std::ranges::copy(tokens, ids.view().as<int32_t>());
  const Tensor x_there = x.to(where), ids_there = ids.to(where);
  const Tensor out(DType::f32, {rows}, where), best(DType::i32, {rows, top}, where);
  const Tensor best_out(DType::f32, {rows, top}, where);
  token_logprobs({.logits = x_there,
                  .tokens = ids_there,
                  .logprobs = out,
                  .top_tokens = best,
                  .top_logprobs = best_out},
                 {.row = row});
  const Tensor got = out.to(cpu_device()), got_best = best.to(cpu_device());
  const Tensor got_best_out = best_out.to(cpu_device());
  const auto values = [](const Tensor& t) {
    return std::vector<float>(t.view().as<float>(), t.view().as<float>() + t.view().num_elements());
  };
  const int32_t* first = got_best.view().as<int32_t>();
  return {values(got), values(got_best_out), {first, first + rows * top}};
}

// The sums are the same integers; a logarithm in double and a rounding to float differ by less
// than one unit of the last place.
void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) || std::isinf(want[i])) {
      EXPECT_TRUE(std::isnan(got[i]) == std::isnan(want[i])) << i;
      continue;
    }
    EXPECT_NEAR(got[i], want[i], 0x1p-23 * std::fabs(double{want[i]}) + 1e-12) << i;
  }
}

TEST_F(SampleOnGpu, LogprobsAreThoseOfTheCpu) {
  std::mt19937_64 random(21);
  for (const auto& [rows, vocab, top] :
       {std::array<int64_t, 3>{5, 1, 1}, {9, 300, 20}, {9, 2049, 256}, {33, 32000, 20},
        {3, 128256, 5}, {64, 20000, 0}, {2, 50257, 100}}) {
    std::vector<float> logits(static_cast<size_t>(rows * vocab));
    Batch shape(random, 1, vocab, false);
    for (int64_t r = 0; r < rows; ++r) shape.fill_logits(random, logits.data() + r * vocab);
    std::vector<int32_t> tokens(static_cast<size_t>(rows));
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab + 2)) - 1;
    }
    const Logprobs want = logprobs_on(cpu_device(), logits, tokens, top, "");
    for (const std::string& row : rows_of("token_logprobs")) {
      SCOPED_TRACE(row + ": " + std::to_string(rows) + " rows of " + std::to_string(vocab));
      const Logprobs got = logprobs_on(cuda_device(), logits, tokens, top, row);
      EXPECT_EQ(got.top_tokens, want.top_tokens);
      expect_near(got.logprobs, want.logprobs);
      expect_near(got.top_logprobs, want.top_logprobs);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
