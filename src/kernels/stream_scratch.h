// Scratch memory for one call on a stream.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/device.h"

namespace tessera::kernels {

struct ScratchMemory;

struct ScratchSize {
  size_t num_bytes = 0;    // uninitialised memory
  size_t num_tickets = 0;  // counters, all 0
};

// Scratch memory for one call. Make it before the call's first kernel is launched and keep it until
// the last one is: it holds a lock, so that two host threads that use one stream cannot interleave
// their kernels. The stream's device must be current.
//
// Outside a capture the memory belongs to the stream, whose work runs in order, and grows if a call
// asks for more. The kMaxKeptScratches streams used last keep their memory; that of the others is
// freed, which waits for the device.
//
// While the stream is captured the memory belongs to the capture, one piece for each stream that
// takes part in it, and lives as long as the graph and what was instantiated from it. Two graphs
// never share any, wherever they were captured and replayed. Two executables made from one graph
// do, as they share its outputs: they must not run at once. A graph that has updated an executable
// (cudaGraphExecUpdate) must live as long as it. Graphs of one GraphPool (core/graph.h) share one
// piece, which lives as long as the pool.
//
// Tickets let the last of several blocks find out that it is the last. They are 0 at the start of a
// call, and a kernel must leave them 0.
inline constexpr size_t kMaxKeptScratches = 16;
class StreamScratch {
 public:
  StreamScratch(Device device, Stream stream, ScratchSize size);
  ~StreamScratch();
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  void* data() const { return data_; }            // aligned to 256 bytes; null if none requested
  uint32_t* tickets() const { return tickets_; }  // likewise

 private:
  ScratchMemory* memory_ = nullptr;  // locked; null: nothing was requested
  void* data_ = nullptr;
  uint32_t* tickets_ = nullptr;
};

// How much scratch memory there is. Also frees the memory of destroyed graphs.
struct ScratchStats {
  int64_t num_calls = 0;  // calls that took scratch memory since the process began
  int64_t num_streams = 0;
  int64_t num_captures = 0;  // pairs of a capture, or the graph it became, and a stream
  int64_t num_bytes = 0;
};
ScratchStats scratch_stats();

}  // namespace tessera::kernels
