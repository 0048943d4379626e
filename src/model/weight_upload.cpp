// The upload of weights: blocks, threads, pinned buffers and streams.
// SPDX-License-Identifier: MIT
#include "model/weight_upload.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "core/graph.h"
#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"

namespace tessera::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBufferAlignment =
    256;  // of a buffer: kernels read whole vectors from its scratch

int num_staging_buffers() { return 2 * std::min(num_threads(), kMaxStagingThreads); }

// One pinned allocation, cut into buffers: pinning costs time for every call.
class DeviceCarrier final : public Carrier {
 public:
  DeviceCarrier(Device device, int64_t buffer_bytes)
      : device_(device),
        buffer_bytes_((buffer_bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment),
        num_buffers_(num_staging_buffers()),
        memory_(device, static_cast<size_t>(num_buffers_ * buffer_bytes_)) {
    for (int i = 0; i < num_buffers_; ++i) streams_.emplace_back(device);
  }

  int num_buffers() const override { return num_buffers_; }
  int64_t buffer_bytes() const override { return buffer_bytes_; }
  std::byte* buffer(int index) const override {
    return memory_.as<std::byte>() + index * buffer_bytes_;
  }

  void send(int index, const TensorView& block, const TensorView& to) override {
    const Stream stream = streams_[static_cast<size_t>(index)].get();
    const auto num_bytes = static_cast<size_t>(storage_bytes(block.dtype, block.num_elements()));
    if (block.dtype == to.dtype && to.is_contiguous()) {
      copy_bytes(to.data, device_, block.data, cpu_device(), num_bytes, stream);
      return;
    }
    std::byte* there = scratch() + index * buffer_bytes_;
    copy_bytes(there, device_, block.data, cpu_device(), num_bytes, stream);
    const TensorView x =
        TensorView::contiguous(there, block.dtype, {to.size(0), to.size(1)}, device_);
    copy({.x = x, .out = to}, {.stream = stream});
  }

  void wait(int index) override {
    synchronize(device_, streams_[static_cast<size_t>(index)].get());
  }

 private:
  // Made when the first block needs it.
  std::byte* scratch() {
    std::call_once(scratch_made_, [&] {
      scratch_.emplace(DType::u8, std::initializer_list<int64_t>{num_buffers_ * buffer_bytes_},
                       device_);
    });
    return scratch_->view().as<std::byte>();
  }

  Device device_;
  int64_t buffer_bytes_;
  int num_buffers_;
  HostBuffer memory_;
  std::once_flag scratch_made_;
  std::optional<Tensor> scratch_;
  std::deque<OwnedStream> streams_;  // one for each buffer
};

}  // namespace

void Carrier::wait_quietly(int index) noexcept {
  try {
    wait(index);
  } catch (const Error&) {  // a broken device is reported by whatever fails first
  }
}

std::unique_ptr<Carrier> make_carrier(Device device, int64_t buffer_bytes) {
  return std::make_unique<DeviceCarrier>(device, buffer_bytes);
}

int64_t carrier_bytes(int64_t buffer_bytes) { return num_staging_buffers() * buffer_bytes; }

struct WeightUpload::Job {
  Job(const WeightSource& source, const Slice& from, const Placement& where, const TensorView& out,
      DType dtype, bool check_values)
      : slice(from),
        place(where),
        to(out),
        native(source.native_dtype(slice.spec, dtype)),
        carried(check_values || slice.offset != 0.0f ? dtype : native),
        reader(source, slice, dtype, check_values) {}

  int64_t row_bytes() const { return storage_bytes(carried, slice.num_cols); }

  Slice slice;
  Placement place;
  TensorView to;
  DType native;   // as the source has it
  DType carried;  // in the pinned buffer
  SliceReader reader;
};

// What the threads of a run share.
struct WeightUpload::Progress {
  std::atomic<int> next_lane = 0;
  std::atomic<int> num_lanes = 0;  // that had something to do
  std::atomic<int64_t> num_bytes = 0;
  std::atomic<int64_t> read_ns = 0;
  std::atomic<int64_t> wait_ns = 0;
};

WeightUpload::WeightUpload(const WeightSource& source, DType dtype, bool check_values)
    : source_(source), dtype_(dtype), check_values_(check_values) {}

WeightUpload::~WeightUpload() = default;

void WeightUpload::add(const Slice& slice, const Placement& place, const TensorView& to) {
  jobs_.push_back(std::make_unique<Job>(source_, slice, place, to, dtype_, check_values_));
}

int64_t WeightUpload::least_buffer_bytes() const {
  int64_t most = 1;
  for (const auto& job : jobs_) most = std::max(most, job->row_bytes() * job->place.rows_at_once());
  return most;
}

std::vector<WeightUpload::Block> WeightUpload::cut(int64_t buffer_bytes) {
  std::vector<Block> blocks;
  for (const auto& each : jobs_) {
    Job& job = *each;
    const int64_t group = job.place.rows_at_once();
    const int64_t group_bytes = std::max<int64_t>(1, job.row_bytes() * group);
    const int64_t num_rows = buffer_bytes / group_bytes * group;
    if (num_rows == 0) {
      fail(concat("WeightUpload: a buffer has ", buffer_bytes, " bytes, and ", group, " rows of '",
                  job.slice.spec.name, "' take ", group_bytes));
    }
    for (int64_t row = 0; row < job.slice.num_rows; row += num_rows) {
      blocks.push_back({&job, row, std::min(num_rows, job.slice.num_rows - row)});
    }
  }
  return blocks;
}

void WeightUpload::carry(const Block& block, int buffer, Carrier& carrier,
                         Progress& progress) const {
  Job& job = *block.job;
  const auto start = Clock::now();
  carrier.wait(buffer);
  const auto free = Clock::now();
  const TensorView rows = TensorView::contiguous(carrier.buffer(buffer), job.carried,
                                                 {block.num_rows, job.slice.num_cols});
  job.reader.read(block.row, rows);
  progress.read_ns += std::chrono::nanoseconds(Clock::now() - free).count();
  progress.wait_ns += std::chrono::nanoseconds(free - start).count();
  carrier.send(buffer, rows, job.place.target(block.row, block.num_rows, job.to));
  progress.num_bytes += storage_bytes(job.native, block.num_rows * job.slice.num_cols);
}

UploadTimes WeightUpload::run(Carrier& carrier, const std::function<void(int64_t)>& on_bytes) {
  const std::vector<Block> blocks = cut(carrier.buffer_bytes());
  const std::thread::id caller = std::this_thread::get_id();
  const auto begin = Clock::now();
  Progress progress;
  // However it ends: afterwards the caller may free the buffers, or what they are copied to.
  struct Drain {
    Carrier& carrier;
    ~Drain() {
      for (int i = 0; i < carrier.num_buffers(); ++i) carrier.wait_quietly(i);
    }
  };
  const Drain drain{carrier};
  parallel_shares(std::ssize(blocks), 1, [&](Share& share) {
    const int lane = progress.next_lane++;
    if (2 * lane + 1 >= carrier.num_buffers()) return;  // the other threads have all buffers
    for (int turn = 0; share.next(); turn = 1 - turn) {
      carry(blocks[static_cast<size_t>(share.begin())], 2 * lane + turn, carrier, progress);
      if (std::this_thread::get_id() == caller && on_bytes) on_bytes(progress.num_bytes);
    }
    ++progress.num_lanes;
  });
  for (int i = 0; i < carrier.num_buffers(); ++i) carrier.wait(i);
  const std::chrono::duration<double> took = Clock::now() - begin;
  for (const auto& job : jobs_) job->reader.finish();
  jobs_.clear();
  return {.num_bytes = progress.num_bytes,
          .num_threads = progress.num_lanes,
          .seconds = took.count(),
          .read_seconds = static_cast<double>(progress.read_ns) * 1e-9,
          .wait_seconds = static_cast<double>(progress.wait_ns) * 1e-9};
}

}  // namespace tessera::model
