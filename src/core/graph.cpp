// Streams, events and graphs in every build; the GPU's part goes to device_backend.h.
// SPDX-License-Identifier: MIT
#include "core/graph.h"

#include <atomic>
#include <utility>

#include "core/device_backend.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

thread_local GraphPool* recording = nullptr;

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

OwnedStream::OwnedStream(Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = backend::create_stream(device);
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) backend::destroy_stream(device_, stream_);
}

StreamEvent::StreamEvent(Device device) : device_(device) {
  if (!device.is_cpu()) event_ = backend::create_event(device);
}

StreamEvent::~StreamEvent() {
  if (event_ != nullptr) backend::destroy_event(device_, event_);
}

StreamEvent::StreamEvent(StreamEvent&& other) noexcept
    : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}

void StreamEvent::record(Stream stream) {
  if (event_ != nullptr) backend::record_event(device_, event_, stream);
}

void StreamEvent::wait() const {
  if (event_ != nullptr) backend::wait_for_event(device_, event_);
}

Graph::~Graph() {
  if (executable_ != nullptr) backend::destroy_graph(device_, executable_);
}

Graph::Graph(Graph&& other) noexcept
    : device_(other.device_), executable_(std::exchange(other.executable_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(executable_, other.executable_);
  return *this;
}

void Graph::launch(Stream stream) const {
  expects(executable_ != nullptr, "Graph: there is nothing to launch; capture it first");
  backend::launch_graph(device_, executable_, stream);
}

GraphPool::GraphPool(Device device) : device_(device), id_(next_id()) {}

GraphPool::~GraphPool() {
  for (const std::function<void()>& action : at_end_) action();
}

GraphPool* GraphPool::current() { return recording; }

Graph GraphPool::capture(Stream stream, const std::function<void()>& work) {
  expects(!device_.is_cpu(), "GraphPool: work on the CPU is not recorded");
  expects(stream != nullptr, "GraphPool: the default stream cannot be recorded");
  struct Recording {
    explicit Recording(GraphPool* pool) : previous(std::exchange(recording, pool)) {}
    ~Recording() { recording = previous; }
    GraphPool* previous;
  };
  Graph graph;
  graph.device_ = device_;
  backend::begin_capture(device_, stream);
  try {
    const Recording scope(this);
    work();
  } catch (...) {
    backend::drop_capture(device_, stream);
    throw;
  }
  graph.executable_ = backend::end_capture(device_, stream);
  return graph;
}

}  // namespace tessera
