// A stream of one's own, events on it, and work recorded once to be replayed: CUDA graphs.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/core/device.h"

namespace tessera {

// A stream besides the default one, with which it stays in order: each waits for work that the
// other was given before. Null, with no effect, for the CPU.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  Stream get() const { return stream_; }

 private:
  Device device_;
  Stream stream_ = nullptr;
};

// A place in a stream to wait for. On the CPU, where work is done when a call returns, it does
// nothing.
class StreamEvent {
 public:
  explicit StreamEvent(Device device);
  ~StreamEvent();
  StreamEvent(StreamEvent&& other) noexcept;
  StreamEvent(const StreamEvent&) = delete;

  void record(Stream stream);
  // Waits until the work before the last record has finished; throws if the device is broken.
  void wait() const;

 private:
  Device device_;
  void* event_ = nullptr;
};

// Recorded work, ready to be replayed.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch(Stream stream) const;

 private:
  friend class GraphPool;
  Device device_ = {};
  void* executable_ = nullptr;
};

// Records graphs that never run at the same time, for example because all are replayed on one
// stream. They share the kernels' scratch memory, which lives as long as the pool.
class GraphPool {
 public:
  explicit GraphPool(Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  // Records what `work` queues on the stream; nothing of it runs now. If `work` throws, the
  // recording is dropped. Only for GPUs, and not for the default stream.
  Graph capture(Stream stream, const std::function<void()>& work);

  // The pool that this thread records for; null: none.
  static GraphPool* current();
  uint64_t id() const { return id_; }  // never used twice
  // Runs when the pool is destroyed, after its graphs must have been.
  void at_end(std::function<void()> action) { at_end_.push_back(std::move(action)); }

 private:
  Device device_;
  uint64_t id_;
  std::vector<std::function<void()>> at_end_;
};

}  // namespace tessera
