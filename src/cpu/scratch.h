// Memory that a thread keeps from call to call.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace tessera::cpu {

class Scratch {
 public:
  // Room for so many floats, aligned to a cache line; what the last call returned is gone.
  float* take(int64_t count) {
    if (count > capacity_) {
      floats_.reset();
      capacity_ = 0;
      const size_t bytes = static_cast<size_t>(count) * sizeof(float);
      floats_.reset(static_cast<float*>(::operator new(bytes, kLine)));
      capacity_ = count;
    }
    return floats_.get();
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct FreeLines {
    void operator()(float* floats) const { ::operator delete(floats, kLine); }
  };
  std::unique_ptr<float, FreeLines> floats_;
  int64_t capacity_ = 0;
};

}  // namespace tessera::cpu
