// Regular expressions by PCRE2, with limits on its time; patterns as tokenizer.json writes them.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/pattern.h"

#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <array>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/regex_syntax.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMaxPatternBytes = 16384;  // the longest in use have 2 kB
constexpr uint32_t kMaxNesting = 100;
constexpr uint32_t kHeapLimitKib = 65536;
// Backtracking steps from one starting position: a few passes over the rest of the text.
constexpr size_t kStepsPerByte = 16;
constexpr size_t kBaseSteps = 20'000;
// Backtracking steps of one call, which tries many positions: the clock is read about every 0.5 s.
constexpr size_t kStepsPerCall = size_t{1} << 27;
constexpr uint32_t kAttemptsPerClockRead = 16;

int64_t thread_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // not wall time: the machine may be busy
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
  if (++num_attempts_ % kAttemptsPerClockRead != 0) return;
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
  // In Oniguruma ^ and $ match at every line.
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
  // Without a just-in-time compiler PCRE2 interprets: slower, with the same matches.
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
      ++pos_;
      while (pos_ < text_.size() && unicode::is_continuation(text_[pos_])) ++pos_;
      continue;
    }
    pos_ = last_end_ = match->end;
    return match;
  }
  pos_ = text_.size() + 1;
  return std::nullopt;
}

// The first match at or after pos_. Each call of PCRE2 tries a bounded number of starting
// positions, so that the budget is checked in time.
std::optional<Match> Regex::Scan::search() {
  const pcre2_code* code = regex_->code_->compiled.get();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  size_t from = pos_;
  while (true) {
    size_t limit = from + std::min(starts_per_call_, text_.size() - from);
    while (limit < text_.size() && unicode::is_continuation(text_[limit])) ++limit;
    pcre2_set_offset_limit(scratch_->context.get(), limit);
    budget_->charge();
    const auto match = [&](uint32_t options) {
      return pcre2_match(code, subject, text_.size(), from, options | PCRE2_NO_UTF_CHECK,
                         scratch_->data.get(), scratch_->context.get());
    };
    int result = match(0);
    // Compiled code has a small stack; the interpreter uses the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) {
      if (limit == text_.size()) return std::nullopt;
      from = limit;  // this position is tried twice, which is cheaper than finding the next one
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

namespace {

constexpr size_t kMaxGrowth = 32;  // NFKC makes a character at most 11 times as long
constexpr size_t kFreeGrowth = 1024;

}  // namespace

Pattern Pattern::read(const FileNode& node) {
  if (const auto regex = node.find("Regex")) return Pattern(Regex(regex->text(), regex->place()));
  if (const auto literal = node.find("String")) return Pattern(literal->text());
  node.refuse("is neither a Regex nor a String");
}

Replacement Replacement::read(const FileNode& node) {
  return {Pattern::read(node.at("pattern")), node.at("content").text()};
}

std::string Replacement::apply(std::string_view text, size_t max_bytes, MatchBudget& budget) const {
  std::string out;
  size_t done = 0;
  pattern.for_each(text, budget, [&](const Match& match) {
    out.append(text.substr(done, match.begin - done));
    out.append(content);
    check_growth(out.size(), max_bytes);
    done = match.end;
  });
  out.append(text.substr(done));
  check_growth(out.size(), max_bytes);
  return out;
}

size_t max_grown_bytes(size_t bytes) { return kMaxGrowth * bytes + kFreeGrowth; }

void check_growth(size_t bytes, size_t max_bytes) {
  if (bytes <= max_bytes) return;
  fail(concat("tokenizer: the file's Replace or Prepend steps make more than ", max_bytes,
              " bytes, ", kMaxGrowth, " times the text they are given"));
}

}  // namespace tessera::tokenizer
