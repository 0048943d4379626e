// Scratch memory kept for each stream; beyond a number of streams, memory ordered on them.
// SPDX-License-Identifier: MIT
#include "kernels/stream_scratch.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

#include "core/cuda_check.h"
#include "kernels/relaxed_capture.h"

namespace tessera::kernels {
namespace {

constexpr size_t kLeastBytes = 1 << 16;
constexpr size_t kLeastTickets = 1 << 12;

struct Kept {
  void* data = nullptr;
  size_t num_bytes = 0;
  uint32_t* tickets = nullptr;
  size_t num_tickets = 0;
};

// Zeros that are there on return, also while some stream is captured: on a stream of its own, which
// waits for no other.
void* allocate_zeros(Device device, size_t num_bytes) {
  void* data = allocate(device, num_bytes);
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cudaError_t filled = cudaMemsetAsync(data, 0, num_bytes, stream);
  const cudaError_t waited = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  cuda_check(filled, "cudaMemsetAsync");
  cuda_check(waited, "cudaStreamSynchronize");
  return data;
}

// What the stream keeps, at least as large as `size`; with nulls where every kept scratch belongs
// to another stream. Sizes double, so that all that was outgrown is less than what is in use.
Kept kept_scratch(Device device, Stream stream, ScratchSize size) {
  // Never freed: at exit the runtime may be gone, and graphs may still name the addresses.
  static auto& all = *new std::map<std::pair<int, Stream>, Kept>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::pair key(device.index, stream);
  if (!all.contains(key) && all.size() >= kMaxKeptScratches) return {};
  Kept& kept = all[key];
  if (kept.num_bytes < size.num_bytes) {
    const size_t num_bytes = std::max(std::bit_ceil(size.num_bytes), kLeastBytes);
    kept.data = allocate(device, num_bytes);
    kept.num_bytes = num_bytes;
  }
  if (kept.num_tickets < size.num_tickets) {
    const size_t num_tickets = std::max(std::bit_ceil(size.num_tickets), kLeastTickets);
    kept.tickets = static_cast<uint32_t*>(allocate_zeros(device, num_tickets * sizeof(uint32_t)));
    kept.num_tickets = num_tickets;
  }
  return kept;
}

}  // namespace

StreamScratch::StreamScratch(Device device, Stream stream, ScratchSize size) : stream_(stream) {
  const RelaxedCapture relaxed;
  const Kept kept = kept_scratch(device, stream, size);
  if (size.num_bytes > 0) data_ = kept.data;
  if (size.num_tickets > 0) tickets_ = kept.tickets;
  is_kept_ = kept.data != nullptr || kept.tickets != nullptr;
  if (is_kept_) return;
  if (size.num_bytes > 0) {
    cuda_check(cudaMallocAsync(&data_, size.num_bytes, stream), "cudaMallocAsync");
  }
  if (size.num_tickets == 0) return;
  const size_t ticket_bytes = size.num_tickets * sizeof(uint32_t);
  void* tickets = nullptr;
  cuda_check(cudaMallocAsync(&tickets, ticket_bytes, stream), "cudaMallocAsync");
  tickets_ = static_cast<uint32_t*>(tickets);
  cuda_check(cudaMemsetAsync(tickets, 0, ticket_bytes, stream), "cudaMemsetAsync");
}

StreamScratch::~StreamScratch() {
  if (is_kept_) return;
  // What went wrong before has been reported.
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  if (tickets_ != nullptr) cudaFreeAsync(tickets_, stream_);
}

}  // namespace tessera::kernels
