// PCRE2 with Unicode, its just-in-time compiler where there is one, and limits on everything.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/regex.h"

#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/file_node.h"
#include "text/tokenizer/regex_syntax.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 16384;  // the longest in use have 2 kB
constexpr uint32_t kMaxNesting = 100;
constexpr uint32_t kHeapLimitKib = 65536;
// Backtracking steps at one starting place: a few passes over the rest of the text.
constexpr size_t kStepsPerByte = 16;
constexpr size_t kBaseSteps = 20'000;
// And in one call, which tries many places: about half a second between two looks at the clock.
constexpr size_t kStepsPerCall = size_t{1} << 27;
constexpr uint32_t kAttemptsPerLook = 16;

int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // not the wall clock: a busy machine is no fault
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

template <class Pointer>
Pointer made(Pointer pointer) {
  expects(pointer != nullptr, "tokenizer: no memory for a regular expression");
  return pointer;
}

}  // namespace

MatchBudget::MatchBudget(size_t text_bytes)
    : limit_ns_(5'000'000'000 + 2'000 * static_cast<int64_t>(text_bytes)),
      start_ns_(thread_nanoseconds()) {}

void MatchBudget::charge() {
  if (++num_attempts_ % kAttemptsPerLook != 0) return;
  expects(thread_nanoseconds() - start_ns_ < limit_ns_,
          "tokenizer: its regular expressions take too long on this text; the file's pattern "
          "backtracks without end");
}

struct Regex::Code {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> compiled;
};

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(std::string_view pattern, std::string_view place)
    : code_(std::make_unique<Code>()), place_(place) {
  if (pattern.size() > kMaxPatternBytes) {
    fail(concat(place, ": the pattern has ", pattern.size(), " bytes; at most ", kMaxPatternBytes,
                " are compiled"));
  }
  const std::string translated = pcre2_syntax(pattern, place);
  const CompileContext context = made(CompileContext(pcre2_compile_context_create(nullptr)));
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // Multiline, since ^ and $ hold at every line in Oniguruma.
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                      translated.size(), kOptions, &error, &offset, context.get()));
  if (code_->compiled == nullptr) {
    fail(concat(place, ": the pattern ", in_quotes(translated), " is refused at offset ", offset,
                ": ", message_of(error)));
  }
  // Where there is no just-in-time compiler, the interpreter serves: slower, the same matches.
  pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);
}

struct Regex::Scan::Scratch {
  MatchContext context;
  MatchData data;
};

Regex::Scan::Scan(const Regex& regex, std::string_view text, MatchBudget& budget)
    : regex_(&regex), text_(text), budget_(&budget), scratch_(std::make_unique<Scratch>()) {
  scratch_->context = made(MatchContext(pcre2_match_context_create(nullptr)));
  scratch_->data = made(MatchData(pcre2_match_data_create(1, nullptr)));
  const size_t steps = std::min(kBaseSteps + kStepsPerByte * text.size(), size_t{UINT32_MAX});
  starts_per_call_ = std::max(kStepsPerCall / steps, size_t{1});
  pcre2_set_match_limit(scratch_->context.get(), static_cast<uint32_t>(steps));
  pcre2_set_depth_limit(scratch_->context.get(), static_cast<uint32_t>(steps));
  pcre2_set_heap_limit(scratch_->context.get(), kHeapLimitKib);
}

Regex::Scan::~Scan() = default;

std::optional<Match> Regex::Scan::next() {
  while (pos_ <= text_.size()) {
    const std::optional<Match> match = search();
    if (!match) break;
    if (match->begin == match->end && match->end == last_end_) {
      ++pos_;  // and past the rest of the character
      while (pos_ < text_.size() && (static_cast<uint8_t>(text_[pos_]) & 0xC0u) == 0x80u) ++pos_;
      continue;
    }
    pos_ = last_end_ = match->end;
    return match;
  }
  pos_ = text_.size() + 1;
  return std::nullopt;
}

// The first match at or after pos_. Each call tries a bounded number of starting places, so that
// the budget is looked at in time.
std::optional<Match> Regex::Scan::search() {
  const pcre2_code* code = regex_->code_->compiled.get();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  size_t from = pos_;
  while (true) {
    size_t limit = from + std::min(starts_per_call_, text_.size() - from);
    while (limit < text_.size() && (static_cast<uint8_t>(text_[limit]) & 0xC0u) == 0x80u) ++limit;
    pcre2_set_offset_limit(scratch_->context.get(), limit);
    budget_->charge();
    const auto match = [&](uint32_t options) {
      return pcre2_match(code, subject, text_.size(), from, options | PCRE2_NO_UTF_CHECK,
                         scratch_->data.get(), scratch_->context.get());
    };
    int result = match(0);
    // Compiled code has a small stack; the interpreter takes its memory from the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) {
      if (limit == text_.size()) return std::nullopt;
      from = limit;  // tried already, and tried again: it costs less than finding the next
      continue;
    }
    if (result < 0) {
      fail(concat(regex_->place_, ": the pattern gives up on a text of ", text_.size(),
                  " bytes: ", message_of(result)));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->data.get());
    if (bounds[0] > bounds[1] || bounds[0] < pos_) {
      fail(concat(regex_->place_, ": the pattern moves the start of its match (\\K)"));
    }
    return Match{bounds[0], bounds[1]};
  }
}

}  // namespace tessera::tokenizer
