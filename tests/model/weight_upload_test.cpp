// The upload of weights without a GPU: buffers, threads, places and failures. Copies may be slower
// than any GPU's: they can be put off until someone waits for them.
// SPDX-License-Identifier: MIT
#include "model/weight_upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tests/core/message_of.h"
#include "tests/core/threads.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::Carrier;
using model::Placement;
using model::Slice;
using model::TensorSpec;
using model::UploadTimes;
using model::WeightSource;
using model::WeightUpload;

// Values by name and place. Some rows cannot be read, or hold a value that is not finite.
class PlacedSource final : public WeightSource {
 public:
  explicit PlacedSource(DType stored = DType::f32) : stored_(stored) {}

  DType dtype_of(const TensorSpec&) const override { return stored_; }
  DType native_dtype(const TensorSpec&, DType) const override { return stored_; }
  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
    const Tensor floats(DType::f32, {to.size(0), to.size(1)});
    for (int64_t i = 0; i < to.size(0); ++i) {
      if (spec.name == broken_name && row + i >= broken_row) {
        std::this_thread::yield();
        throw Error(concat("row ", row + i, " of ", spec.name));
      }
      for (int64_t j = 0; j < to.size(1); ++j) {
        floats.view().as<float>()[i * to.size(1) + j] =
            spec.name == infinite_name && row + i == infinite_row
                ? std::numeric_limits<float>::infinity()
                : value_at(spec.name, row + i, col + j);
      }
    }
    convert(floats, to);
    const std::lock_guard lock(mutex_);
    readers_.insert({std::this_thread::get_id(), 0}).first->second += 1;
  }
  size_t num_reading_threads() const { return readers_.size(); }

  std::string broken_name = {}, infinite_name = {};
  int64_t broken_row = 0, infinite_row = 0;

 private:
  DType stored_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, int> readers_;
};

// Copies nothing until it is waited for: a buffer that is filled too early, or never waited for,
// shows as wrong values.
class LateCarrier final : public Carrier {
 public:
  LateCarrier(int num_buffers, int64_t buffer_bytes)
      : buffer_bytes_(buffer_bytes), sent_(static_cast<size_t>(num_buffers)) {
    for (int i = 0; i < num_buffers; ++i) {
      memory_.emplace_back(DType::u8, std::initializer_list<int64_t>{buffer_bytes});
    }
  }
  int num_buffers() const override { return static_cast<int>(memory_.size()); }
  int64_t buffer_bytes() const override { return buffer_bytes_; }
  std::byte* buffer(int index) const override {
    return memory_[static_cast<size_t>(index)].view().as<std::byte>();
  }
  void send(int index, const TensorView& block, const TensorView& to) override {
    Sent& sent = sent_[static_cast<size_t>(index)];
    EXPECT_EQ(sent.block.data, nullptr) << "sent again before it was waited for";
    sent = {block, to};
    ++num_sent;
  }
  void wait(int index) override {
    Sent& sent = sent_[static_cast<size_t>(index)];
    if (sent.block.data == nullptr) return;
    const int64_t num_cols = sent.to.size(1);
    for (int64_t i = 0; i < sent.to.size(0); ++i) {
      const auto row = [&](const TensorView& view, int64_t stride) {
        return TensorView::contiguous(view.as<std::byte>() + storage_bytes(view.dtype, i * stride),
                                      view.dtype, {num_cols});
      };
      convert(row(sent.block, num_cols), row(sent.to, sent.to.stride(0)));
    }
    sent = {};
  }
  bool is_idle() const {
    return std::ranges::all_of(sent_, [](const Sent& s) { return s.block.data == nullptr; });
  }
  std::atomic<int> num_sent = 0;

 private:
  struct Sent {
    TensorView block = {}, to = {};
  };
  int64_t buffer_bytes_;
  std::vector<Tensor> memory_;
  std::vector<Sent> sent_;
};

Slice slice_of(const std::string& name, int64_t row, int64_t num_rows, int64_t col,
               int64_t num_cols) {
  return {.spec = {.name = name, .num_rows = 1000, .num_cols = 1000},
          .row = row,
          .num_rows = num_rows,
          .col = col,
          .num_cols = num_cols};
}

// Two slices that follow each other and two whose rows alternate in groups of 8.
struct Example {
  explicit Example(DType dtype) : runs(dtype, {70, 33}), interleaved(dtype, {96, 20}) {}

  void add_to(WeightUpload& upload) const {
    upload.add(first, {.begin = 0, .num_slices = 2}, runs);
    upload.add(second, {.begin = 30, .slice = 1, .num_slices = 2}, runs);
    upload.add(gate, {.interleave = 8, .slice = 0, .num_slices = 2}, interleaved);
    upload.add(up, {.interleave = 8, .slice = 1, .num_slices = 2}, interleaved);
  }
  void expect_filled() const {
    const auto at = [](const TensorView& view, int64_t row, int64_t col) {
      return load_as_float(view, std::vector<int64_t>{row, col});
    };
    for (int64_t row = 0; row < 70; ++row) {
      for (int64_t col = 0; col < 33; ++col) {
        const float want =
            row < 30 ? value_at("first", 5 + row, 2 + col) : value_at("second", row - 30, 3 + col);
        ASSERT_EQ(at(runs, row, col), want) << row << ", " << col;
      }
    }
    for (int64_t row = 0; row < 96; ++row) {
      const int64_t from = row / 16 * 8 + row % 8;
      for (int64_t col = 0; col < 20; ++col) {
        ASSERT_EQ(at(interleaved, row, col), value_at(row % 16 < 8 ? "gate" : "up", from, col))
            << row << ", " << col;
      }
    }
  }
  static int64_t stored_bytes(DType stored) { return storage_bytes(stored, 70 * 33 + 96 * 20); }

  Tensor runs, interleaved;
  Slice first = slice_of("first", 5, 30, 2, 33), second = slice_of("second", 0, 40, 3, 33);
  Slice gate = slice_of("gate", 0, 48, 0, 20), up = slice_of("up", 0, 48, 0, 20);
};

TEST(WeightUpload, PutsEveryElementInItsPlaceFromEveryTypeToEveryType) {
  for (const int num_threads : {1, 4}) {
    const Threads threads(num_threads);
    for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
      for (const DType wanted : {DType::f32, DType::f16, DType::bf16}) {
        for (const int64_t buffer_bytes : {int64_t{640}, int64_t{1000}, model::kStagingBytes}) {
          const PlacedSource source(stored);
          const Example example(wanted);
          WeightUpload upload(source, wanted, false);
          example.add_to(upload);
          const auto carrier = model::make_carrier(cpu_device(), buffer_bytes);
          const UploadTimes times = upload.run(*carrier, {});
          EXPECT_EQ(times.num_bytes, example.stored_bytes(stored));
          example.expect_filled();
        }
      }
    }
  }
}

TEST(WeightUpload, AddsTheOffsetOfASliceBeforeItRounds) {
  const PlacedSource source(DType::f32);
  const Tensor to(DType::bf16, {50, 3});
  Slice slice = slice_of("norm", 4, 50, 0, 3);
  slice.offset = 1.0f / 1024;  // lost if the values were rounded to bf16 first
  WeightUpload upload(source, DType::bf16, false);
  upload.add(slice, {}, to);
  const auto carrier = model::make_carrier(cpu_device(), 64);
  upload.run(*carrier, {});
  for (int64_t row = 0; row < 50; ++row) {
    for (int64_t col = 0; col < 3; ++col) {
      const Bf16 want = from_float<Bf16>(value_at("norm", 4 + row, col) + slice.offset);
      ASSERT_EQ(to.view().as<Bf16>()[row * 3 + col].bits, want.bits) << row << ", " << col;
    }
  }
}

TEST(WeightUpload, FillsABufferOnlyOnceItsCopyIsOver) {
  for (const int num_threads : {1, 3, 8}) {
    const Threads threads(num_threads);
    for (int round = 0; round < 20; ++round) {
      const PlacedSource source(DType::bf16);
      const Example example(DType::f32);
      LateCarrier carrier(2 * num_threads, 640);
      WeightUpload upload(source, DType::f32, false);
      example.add_to(upload);
      upload.run(carrier, {});
      EXPECT_GT(carrier.num_sent, 10);
      EXPECT_TRUE(carrier.is_idle());
      example.expect_filled();
    }
  }
}

TEST(WeightUpload, UsesNoMoreThreadsThanThereAreBuffersFor) {
  const Threads threads(8);
  const PlacedSource source;
  const Example example(DType::f32);
  LateCarrier carrier(4, 640);
  WeightUpload upload(source, DType::f32, false);
  example.add_to(upload);
  const UploadTimes times = upload.run(carrier, {});
  EXPECT_LE(times.num_threads, 2);
  EXPECT_LE(source.num_reading_threads(), 2u);
  example.expect_filled();
}

// Whichever thread fails first, the message is that of the first block; and nothing is under way
// any more when it is thrown.
TEST(WeightUpload, ThrowsTheErrorOfTheFirstBlockThatFailed) {
  for (const int num_threads : {1, 2, 8}) {
    const Threads threads(num_threads);
    for (int round = 0; round < 20; ++round) {
      PlacedSource source;
      source.broken_name = "second";
      source.broken_row = 7;
      const Example example(DType::bf16);
      LateCarrier carrier(2 * num_threads, 640);
      WeightUpload upload(source, DType::bf16, false);
      example.add_to(upload);
      EXPECT_EQ(message_of([&] { upload.run(carrier, {}); }), "row 7 of second");
      EXPECT_TRUE(carrier.is_idle());
    }
  }
}

TEST(WeightUpload, NamesTheFirstValueThatIsNotFinite) {
  const Threads threads(4);
  for (const DType stored : {DType::f32, DType::bf16}) {
    PlacedSource source(stored);
    source.infinite_name = "up";
    source.infinite_row = 13;
    const Example example(DType::f16);
    WeightUpload upload(source, DType::f16, true);
    example.add_to(upload);
    const auto carrier = model::make_carrier(cpu_device(), 640);
    const std::string message = message_of([&] { upload.run(*carrier, {}); });
    EXPECT_NE(message.find("tensor 'up' holds inf at [13, 0]"), std::string::npos) << message;
  }
}

TEST(WeightUpload, ReportsProgressOnTheCallersThread) {
  const Threads threads(4);
  const PlacedSource source;
  const Example example(DType::f32);
  LateCarrier carrier(8, 640);
  WeightUpload upload(source, DType::f32, false);
  example.add_to(upload);
  int64_t last = 0;
  const std::thread::id caller = std::this_thread::get_id();
  upload.run(carrier, [&](int64_t done) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_GE(done, last);
    last = done;
  });
  EXPECT_LE(last, example.stored_bytes(DType::f32));
}

TEST(WeightUpload, RefusesBuffersThatHoldNoRow) {
  const PlacedSource source;
  const Example example(DType::f32);
  WeightUpload upload(source, DType::f32, false);
  example.add_to(upload);
  EXPECT_EQ(upload.least_buffer_bytes(), 8 * 20 * 4);
  LateCarrier carrier(2, 8 * 20 * 4 - 1);
  const std::string message = message_of([&] { upload.run(carrier, {}); });
  EXPECT_NE(message.find("a buffer has 639 bytes, and 8 rows of 'gate' take 640"),
            std::string::npos)
      << message;
}

TEST(Placement, RefusesPartsOfAGroup) {
  const Tensor to(DType::f32, {32, 4});
  const Placement place{.interleave = 8, .slice = 1, .num_slices = 2};
  EXPECT_NE(message_of([&] { place.target(4, 8, to); }), "");
  EXPECT_NE(message_of([&] { place.target(8, 4, to); }), "");
  const TensorView target = place.target(8, 8, to);
  EXPECT_EQ(target.as<float>(), to.view().as<float>() + 24 * 4);
}

}  // namespace
}  // namespace tessera::testing
