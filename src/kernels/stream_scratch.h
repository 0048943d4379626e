// Scratch memory that the kernels of one stream share.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/device.h"

namespace tessera::kernels {

struct ScratchSize {
  size_t num_bytes = 0;    // of memory that holds anything
  size_t num_tickets = 0;  // of counters that are 0
};

// The scratch memory of a stream, for one call. Work on a stream runs in order, so all calls on it
// use the same memory, one after the other; what two streams run at once must not share it. So each
// of the first kMaxKeptScratches pairs of device and stream keeps its own until the process ends,
// and it grows where a call asks for more; calls on further streams take memory ordered on the
// stream and give it back.
//
// Tickets are how the last of several blocks finds out that it is the last. They are 0 when a call
// finds them, and a kernel must leave them 0 behind it.
//
// Memory may be taken while the stream is captured. A graph keeps the addresses it was captured
// with, so what has been outgrown is not freed; two graphs captured on one stream must not be
// replayed at once.
inline constexpr size_t kMaxKeptScratches = 16;
class StreamScratch {
 public:
  StreamScratch(Device device, Stream stream, ScratchSize size);
  ~StreamScratch();
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  void* data() const { return data_; }            // aligned to 256 bytes; null if none is asked for
  uint32_t* tickets() const { return tickets_; }  // likewise

 private:
  Stream stream_;
  void* data_ = nullptr;
  uint32_t* tickets_ = nullptr;
  bool is_kept_ = true;
};

}  // namespace tessera::kernels
