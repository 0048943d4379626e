// Output of one request, joined per sequence until it is taken.
// SPDX-License-Identifier: MIT
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "c_api/engine_host.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {

OutputStream::OutputStream(int32_t num_outputs)
    : pending_(static_cast<size_t>(std::max(num_outputs, 1))) {
  for (size_t i = 0; i < pending_.size(); ++i) pending_[i].output.index = static_cast<int32_t>(i);
}

OutputStream::~OutputStream() {
  if (descriptor_ >= 0) close(descriptor_);
}

void OutputStream::add(SequenceOutput&& news) {
  const std::lock_guard lock(mutex_);
  if (news.index < 0 || static_cast<size_t>(news.index) >= pending_.size()) return;
  Pending& one = pending_[static_cast<size_t>(news.index)];
  SequenceOutput& all = one.output;
  std::ranges::move(news.tokens, std::back_inserter(all.tokens));
  all.text += news.text;
  all.finish = news.finish;
  if (!news.error.empty()) all.error = std::move(news.error);
  all.num_prompt_tokens += news.num_prompt_tokens;
  all.num_cached_tokens += news.num_cached_tokens;
  if (!news.embedding.empty()) all.embedding = std::move(news.embedding);
  if (!news.prompt_logprobs.empty()) all.prompt_logprobs = std::move(news.prompt_logprobs);
  all.score = news.score;
  one.has_news = true;
  signal();
}

void OutputStream::end_all(FinishReason reason, const std::string& error) {
  const std::lock_guard lock(mutex_);
  for (Pending& one : pending_) {
    if (one.output.finish != FinishReason::none) continue;
    one.output.finish = reason;
    one.output.error = error;
    one.has_news = true;
  }
  signal();
}

void OutputStream::signal() {
  changed_.notify_all();
  const uint64_t one = 1;
  // Fails only if the counter is at its largest value, and then it is readable already.
  if (descriptor_ >= 0) [[maybe_unused]]
    const ssize_t written = write(descriptor_, &one, sizeof one);
}

OutputStream::Pending* OutputStream::find(bool whole) {
  const auto found = std::ranges::find_if(pending_, [whole](const Pending& one) {
    return one.has_news && (!whole || one.output.finish != FinishReason::none);
  });
  return found == pending_.end() ? nullptr : &*found;
}

bool OutputStream::is_over_locked() const {
  return std::ranges::all_of(pending_, &Pending::was_taken);
}

bool OutputStream::is_over() const {
  const std::lock_guard lock(mutex_);
  return is_over_locked();
}

bool OutputStream::has_ended() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(
      pending_, [](const Pending& one) { return one.output.finish != FinishReason::none; });
}

std::optional<SequenceOutput> OutputStream::take(double timeout_s, bool whole) {
  std::unique_lock lock(mutex_);
  const auto can_go_on = [&] { return find(whole) != nullptr || is_over_locked(); };
  if (timeout_s < 0) {
    changed_.wait(lock, can_go_on);
  } else {
    const std::chrono::duration<double> limit(std::min(timeout_s, 1e6));
    if (!changed_.wait_for(lock, limit, can_go_on)) return std::nullopt;
  }
  Pending* one = find(whole);
  if (one == nullptr) return std::nullopt;
  SequenceOutput taken = std::move(one->output);
  one->output = {.index = taken.index, .finish = taken.finish};
  one->has_news = false;
  one->was_taken = taken.finish != FinishReason::none;
  if (descriptor_ >= 0 && find(false) == nullptr && !is_over_locked()) {
    uint64_t count = 0;  // readable again when more arrives
    [[maybe_unused]] const ssize_t got = ::read(descriptor_, &count, sizeof count);
  }
  return taken;
}

int OutputStream::descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_ >= 0) return descriptor_;
  const bool is_ready = find(false) != nullptr || is_over_locked();
  descriptor_ = eventfd(is_ready ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (descriptor_ < 0) fail(concat("generation: no descriptor: ", std::strerror(errno)));
  return descriptor_;
}

}  // namespace tessera::c_api
