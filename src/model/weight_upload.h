// Weights on their way from a checkpoint to a GPU.
// SPDX-License-Identifier: MIT
//
//   file ──read──▶ pinned buffer ──copy──▶ place on the GPU                  same type, rows in
//   order
//                                 └─copy──▶ scratch ──kernel──▶ place        converted or
//                                 interleaved
//
// Layers only say which slice goes where. Once all are known, every thread reads blocks of them
// into two pinned buffers in turn: while one is copied, the other is filled. Each buffer has a
// stream of its own, so threads wait for nothing but their own copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/slice_reader.h"
#include "tessera/core/device.h"
#include "tessera/core/host_buffer.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// Buffers that blocks are read into, and what brings a block from there to its place. An interface,
// so that a test can be slower than a GPU.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual int num_buffers() const = 0;  // even: two for each thread that may take part
  virtual int64_t buffer_bytes() const = 0;
  virtual std::byte* buffer(int index) const = 0;
  // Begins to bring `block`, the contents of a buffer, to `to`, converting it. A block is
  // contiguous; `to` has as many elements, and its rows may be apart. Different threads may use
  // different buffers at once.
  virtual void send(int index, const TensorView& block, const TensorView& to) = 0;
  // Waits until what was sent from the buffer has arrived.
  virtual void wait(int index) = 0;
  void wait_quietly(int index) noexcept;
};

inline constexpr int64_t kStagingBytes = int64_t{2} << 20;  // of one buffer
inline constexpr int kMaxStagingThreads = 16;               // more do not read faster

// Pinned buffers, two for each thread, and a stream for each. It may be made before a model is
// known, on any thread.
std::unique_ptr<Carrier> make_carrier(Device device, int64_t buffer_bytes = kStagingBytes);
// What it holds: pinned host memory, and as much on the GPU once a block has to be converted.
int64_t carrier_bytes(int64_t buffer_bytes = kStagingBytes);

// What an upload did.
struct UploadTimes {
  int64_t num_bytes = 0;  // as stored
  int num_threads = 0;
  double seconds = 0;       // from the first read to the end of the last copy
  double read_seconds = 0;  // summed over the threads
  double wait_seconds = 0;  // for copies, summed over the threads
};

class WeightUpload {
 public:
  // `source` is needed until run() has returned. With check_values, blocks are converted on the
  // host, where they are checked.
  WeightUpload(const WeightSource& source, DType dtype, bool check_values);
  ~WeightUpload();

  // `to` is the whole tensor, contiguous [rows, cols] of the dtype; the slice fills its part.
  void add(const Slice& slice, const Placement& place, const TensorView& to);
  // The most bytes that have to be in one buffer.
  int64_t least_buffer_bytes() const;
  // Reads all that was added, and returns when it is in place. `on_bytes` is called on this thread
  // only, with the bytes read so far. If reading fails, the error of the first block that failed is
  // thrown, whatever the threads did.
  UploadTimes run(Carrier& carrier, const std::function<void(int64_t)>& on_bytes);

 private:
  struct Job;
  struct Block {
    Job* job;
    int64_t row;
    int64_t num_rows;
  };
  struct Progress;
  std::vector<Block> cut(int64_t buffer_bytes);
  void carry(const Block& block, int buffer, Carrier& carrier, Progress& progress) const;

  const WeightSource& source_;
  DType dtype_;
  bool check_values_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

}  // namespace tessera::model
