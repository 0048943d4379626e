// What becomes of requests and of the engine when a step fails.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"
#include "tessera/core/device_fault.h"

namespace tessera::engine {

std::vector<SequenceOutput> EngineImpl::take_news() {
  rows_.clear();
  retired_.clear();
  closed_.clear();
  return std::exchange(outputs_, {});
}

std::vector<SequenceOutput> EngineImpl::end_all() {
  while (!requests_.empty()) end_request(*requests_.begin()->second, FinishReason::error, death_);
  return take_news();
}

// While the model runs and tokens are sampled, queues and pages stay as they are, and only the
// batch's own pages are written: ending its requests leaves a sound engine. In the other stages a
// failure may have come between two changes that belong together. The engine counts as dead until
// the requests have ended, for want of memory may end this function too.
std::vector<SequenceOutput> EngineImpl::fail_step(std::string_view why, bool is_fault) {
  has_sound_pages_ = stage_ == StepStage::forward || stage_ == StepStage::sample;
  is_dead_ = true;
  death_ = why;
  if (is_fault || !has_sound_pages_) return end_all();
  try {
    synchronize(options_.device);  // kernels may still read what the next step writes
  } catch (const DeviceFault& fault) {
    death_ = fault.what();
    return end_all();
  }
  std::vector<ActiveRequest*> ending;
  for (const BatchRow& row : rows_) {
    ActiveRequest* request = row.sequence->request;
    if (std::ranges::find(ending, request) == ending.end()) ending.push_back(request);
  }
  for (ActiveRequest* request : ending) end_request(*request, FinishReason::error, death_);
  is_dead_ = false;
  return take_news();
}

}  // namespace tessera::engine
