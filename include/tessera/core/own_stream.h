// A stream with an owner.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/device.h"

namespace tessera {

// A stream of a GPU that does not wait for the default stream. It is destroyed with this object,
// once its work is done. On the CPU it is the null stream.
class OwnStream {
 public:
  explicit OwnStream(Device device);
  OwnStream(OwnStream&& other) noexcept;
  OwnStream& operator=(OwnStream&& other) noexcept;
  ~OwnStream();

  operator Stream() const { return stream_; }

 private:
  Device device_;
  Stream stream_ = nullptr;
};

}  // namespace tessera
