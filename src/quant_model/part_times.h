// The seconds that each part of a run takes.
// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <map>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/quant/quantize_model.h"

namespace tessera::quant {

class PartTimes {
 public:
  // Calls `work` and adds its time to that of a part, even if it throws.
  template <class Work>
  std::invoke_result_t<Work&> measure(std::string_view part, Work& work) {
    using Clock = std::chrono::steady_clock;
    struct Adder {
      double& seconds;
      Clock::time_point begin = Clock::now();
      ~Adder() { seconds += std::chrono::duration<double>(Clock::now() - begin).count(); }
    };
    const Adder adder{seconds_[part]};
    return work();
  }
  std::vector<QuantizeTime> all() const {
    std::vector<QuantizeTime> times;
    for (const auto& [part, seconds] : seconds_) times.push_back({part, seconds});
    return times;
  }

 private:
  std::map<std::string_view, double> seconds_;
};

}  // namespace tessera::quant
