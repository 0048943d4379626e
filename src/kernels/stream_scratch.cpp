// Who owns scratch memory: a stream outside captures; otherwise the graph that is being captured,
// or the pool it belongs to.
// SPDX-License-Identifier: MIT
#include "kernels/stream_scratch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda_check.h"
#include "core/graph.h"
#include "kernels/relaxed_capture.h"

namespace tessera::kernels {

struct ScratchMemory {
  std::mutex in_use;  // held while a call has the memory, until its kernels are enqueued
  void* data = nullptr;
  size_t num_bytes = 0;
  uint32_t* tickets = nullptr;
  size_t num_tickets = 0;
  // Smaller pieces that graphs of a pool still use, with their sizes.
  std::vector<std::pair<void*, size_t>> outgrown = {};
  // Guarded by the registry's mutex.
  int num_calls = 0;  // calls that hold it or wait for it
  int64_t last_call = 0;
};

namespace {

constexpr size_t kLeastBytes = 1 << 16;
constexpr size_t kLeastTickets = 1 << 12;

std::atomic<int64_t> num_calls_so_far{0};
std::atomic<int64_t> num_bytes_held{0};

// Device, stream and capture, by ids that are never reused, unlike the handle of a destroyed
// stream. Outside a capture the last is 0, or the thread's id for a per-thread default stream.
// During a capture streams are known by their handles, because the driver does not give their ids
// then.
using Key = std::array<uint64_t, 3>;

uint64_t this_thread() {
  static std::atomic<uint64_t> num_threads{0};
  thread_local const uint64_t number = ++num_threads;
  return number;
}

struct Place {
  Key key;
  cudaGraph_t graph = nullptr;  // that is being captured; null: none
  GraphPool* pool = nullptr;    // of that graph; null: it stands alone
};

Place place_of(Device device, Stream stream) {
  const auto index = static_cast<uint64_t>(device.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture_id = 0, stream_id = 0;
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamGetCaptureInfo(stream, &status, &capture_id, &graph),
             "cudaStreamGetCaptureInfo");
  if (status == cudaStreamCaptureStatusActive) {
    if (GraphPool* pool = GraphPool::current())
      return {{index, pool->id(), ~uint64_t{0}}, graph, pool};
    return {{index, reinterpret_cast<uintptr_t>(stream), capture_id}, graph};
  }
  cuda_check(cudaStreamGetId(stream, &stream_id), "cudaStreamGetId");
  return {{index, stream_id, stream == cudaStreamPerThread ? this_thread() : 0}};
}

void* allocate_counted(Device device, size_t num_bytes) {
  const RelaxedCapture relaxed;
  void* data = allocate(device, num_bytes);
  num_bytes_held += static_cast<int64_t>(num_bytes);
  return data;
}

// Waits until no kernel uses the memory.
void free_counted(Device device, void* data, size_t num_bytes) {
  if (data == nullptr) return;
  const RelaxedCapture relaxed;
  deallocate(device, data);
  num_bytes_held -= static_cast<int64_t>(num_bytes);
}

// Zeroes memory and waits for it, even while a stream is being captured: on a stream of its own,
// which waits for no other.
void fill_zeros(void* data, size_t num_bytes) {
  const RelaxedCapture relaxed;
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cudaError_t filled = cudaMemsetAsync(data, 0, num_bytes, stream);
  const cudaError_t waited = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  cuda_check(filled, "cudaMemsetAsync");
  cuda_check(waited, "cudaStreamSynchronize");
}

// Memory that belonged to a graph. The graph's user object puts it here once the graph and
// everything instantiated from it are gone, on a thread of the driver, where CUDA must not be
// called.
struct GraphMemory {
  Device device;
  Key key;
  void* data;
  size_t num_bytes;
  GraphMemory* next = nullptr;
};
std::atomic<GraphMemory*> left_behind{nullptr};

void CUDART_CB leave_behind(void* memory) {
  auto* one = static_cast<GraphMemory*>(memory);
  one->next = left_behind.load();
  while (!left_behind.compare_exchange_weak(one->next, one)) {
  }
}

void give_to_graph(cudaGraph_t graph, std::unique_ptr<GraphMemory> memory) {
  cudaUserObject_t object = nullptr;
  const cudaError_t created =
      cudaUserObjectCreate(&object, memory.get(), &leave_behind, 1, cudaUserObjectNoDestructorSync);
  if (created != cudaSuccess) {
    free_counted(memory->device, memory->data, memory->num_bytes);
    cuda_check(created, "cudaUserObjectCreate");
  }
  (void)memory.release();  // the user object frees it from here on
  const cudaError_t status = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (status == cudaSuccess) return;
  cudaUserObjectRelease(object, 1);
  cuda_check(status, "cudaGraphRetainUserObject");
}

class Registry {
 public:
  // Counts a call, so that the memory stays until release().
  ScratchMemory& hold(Device device, const Place& place) {
    const bool is_captured = place.graph != nullptr;
    if (!is_captured) free_left_behind();
    std::map<Key, ScratchMemory>::node_type evicted;
    ScratchMemory* memory = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& all = is_captured ? captures_ : streams_;
      if (!is_captured && !all.contains(place.key)) evicted = evict();
      const auto [found, is_new] = all.try_emplace(place.key);
      memory = &found->second;
      if (is_new && place.pool != nullptr) {
        place.pool->at_end([this, device, key = place.key] { end_pool(device, key); });
      }
      ++memory->num_calls;
      memory->last_call = ++num_calls_so_far;
    }
    if (!evicted.empty()) {
      const Device owner{device.kind, static_cast<int>(evicted.key()[0])};
      free_counted(owner, evicted.mapped().data, evicted.mapped().num_bytes);
      free_counted(owner, evicted.mapped().tickets,
                   evicted.mapped().num_tickets * sizeof(uint32_t));
    }
    return *memory;
  }

  void release(ScratchMemory& memory) {
    const std::lock_guard lock(mutex_);
    --memory.num_calls;
  }

  void free_left_behind() {
    GraphMemory* one = left_behind.load() == nullptr ? nullptr : left_behind.exchange(nullptr);
    while (one != nullptr) {
      const std::unique_ptr<GraphMemory> memory(one);
      one = memory->next;
      free_counted(memory->device, memory->data, memory->num_bytes);
      const std::lock_guard lock(mutex_);
      const auto found = captures_.find(memory->key);
      if (found != captures_.end() && found->second.num_calls == 0) captures_.erase(found);
    }
  }

  // The graphs of the pool are gone.
  void end_pool(Device device, const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = captures_.find(key);
    if (found == captures_.end()) return;
    const ScratchMemory& memory = found->second;
    free_counted(device, memory.data, memory.num_bytes);
    free_counted(device, memory.tickets, memory.num_tickets * sizeof(uint32_t));
    for (const auto& [data, num_bytes] : memory.outgrown) free_counted(device, data, num_bytes);
    captures_.erase(found);
  }

  ScratchStats stats() {
    free_left_behind();
    const std::lock_guard lock(mutex_);
    return {.num_calls = num_calls_so_far,
            .num_streams = static_cast<int64_t>(streams_.size()),
            .num_captures = static_cast<int64_t>(captures_.size()),
            .num_bytes = num_bytes_held};
  }

 private:
  // Makes room for one more stream by removing the least recently used one. Returns nothing if
  // there is room, or if every stream has a call in progress.
  std::map<Key, ScratchMemory>::node_type evict() {
    if (streams_.size() < kMaxKeptScratches) return {};
    auto oldest = streams_.end();
    for (auto it = streams_.begin(); it != streams_.end(); ++it) {
      if (it->second.num_calls > 0) continue;
      if (oldest == streams_.end() || it->second.last_call < oldest->second.last_call) oldest = it;
    }
    return oldest == streams_.end() ? std::map<Key, ScratchMemory>::node_type{}
                                    : streams_.extract(oldest);
  }

  std::mutex mutex_;
  std::map<Key, ScratchMemory> streams_;
  std::map<Key, ScratchMemory> captures_;
};

Registry& registry() {
  static auto& only = *new Registry;  // never freed: other threads may still call at exit
  return only;
}

struct Piece {
  void* data;
  size_t num_bytes;
};

// Allocates a larger piece for a call. The old one is freed, or stays with the graph or the pool
// whose kernels use it. Sizes double, so that the outgrown pieces together are smaller than the
// current one.
void* replace(ScratchMemory& memory, Device device, const Place& place, Piece old, size_t num_bytes,
              bool is_zero) {
  if (place.graph == nullptr) {
    free_counted(device, old.data, old.num_bytes);
  } else if (place.pool != nullptr && old.data != nullptr) {
    memory.outgrown.emplace_back(old.data, old.num_bytes);
  }
  void* data = allocate_counted(device, num_bytes);
  try {
    if (is_zero) fill_zeros(data, num_bytes);
  } catch (...) {
    free_counted(device, data, num_bytes);
    throw;
  }
  if (place.graph != nullptr && place.pool == nullptr) {
    give_to_graph(place.graph,
                  std::make_unique<GraphMemory>(GraphMemory{device, place.key, data, num_bytes}));
  }
  return data;
}

void grow(ScratchMemory& memory, Device device, const Place& place, ScratchSize size) {
  if (memory.num_bytes < size.num_bytes) {
    const size_t num_bytes = std::max(std::bit_ceil(size.num_bytes), kLeastBytes);
    const size_t old_bytes = std::exchange(memory.num_bytes, 0);
    void* const old = std::exchange(memory.data, nullptr);
    memory.data = replace(memory, device, place, {old, old_bytes}, num_bytes, false);
    memory.num_bytes = num_bytes;
  }
  if (memory.num_tickets < size.num_tickets) {
    const size_t num_tickets = std::max(std::bit_ceil(size.num_tickets), kLeastTickets);
    const size_t old_bytes = std::exchange(memory.num_tickets, 0) * sizeof(uint32_t);
    void* const old = std::exchange(memory.tickets, nullptr);
    memory.tickets = static_cast<uint32_t*>(
        replace(memory, device, place, {old, old_bytes}, num_tickets * sizeof(uint32_t), true));
    memory.num_tickets = num_tickets;
  }
}

}  // namespace

StreamScratch::StreamScratch(Device device, Stream stream, ScratchSize size) {
  if (size.num_bytes == 0 && size.num_tickets == 0) return;
  const Place place = place_of(device, stream);
  ScratchMemory& memory = registry().hold(device, place);
  memory.in_use.lock();
  try {
    grow(memory, device, place, size);
  } catch (...) {
    memory.in_use.unlock();
    registry().release(memory);
    throw;
  }
  memory_ = &memory;
  if (size.num_bytes > 0) data_ = memory.data;
  if (size.num_tickets > 0) tickets_ = memory.tickets;
}

StreamScratch::~StreamScratch() {
  if (memory_ == nullptr) return;
  memory_->in_use.unlock();
  registry().release(*memory_);
}

ScratchStats scratch_stats() { return registry().stats(); }

}  // namespace tessera::kernels
