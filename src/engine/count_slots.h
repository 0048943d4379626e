// Numbers of the lists that count the tokens a sequence has seen, for penalties.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tessera::engine {

// The free numbers, shared by those that hold one.
using FreeSlots = std::shared_ptr<std::vector<int32_t>>;

// One number, given back when it ends; or none.
class CountSlot {
 public:
  CountSlot() = default;
  explicit CountSlot(FreeSlots free) : free_(std::move(free)), index_(free_->back()) {
    free_->pop_back();
  }
  CountSlot(CountSlot&& other) noexcept { *this = std::move(other); }
  CountSlot& operator=(CountSlot&& other) noexcept {
    std::swap(free_, other.free_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~CountSlot() {
    if (free_) free_->push_back(index_);  // there is room: it had one more before
  }

  int32_t index() const { return index_; }  // -1: none

 private:
  FreeSlots free_;
  int32_t index_ = -1;
};

}  // namespace tessera::engine
