// Another number of threads for the length of a scope.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/parallel.h"

namespace tessera::testing {

class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace tessera::testing
