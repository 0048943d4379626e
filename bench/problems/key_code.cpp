// Digits of keys as vectors, and the queries that choose among them.
// SPDX-License-Identifier: MIT
#include "bench/problems/key_code.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {

KeyCode::KeyCode(int64_t num_keys, int64_t d, Split split) : d_(d), split_(split) {
  for (int64_t reach = 8; reach < num_keys; reach *= 8) ++num_digits_;
  if (num_digits_ <= split.most_digits && num_digits_ * 8 <= d) return;
  fail(concat("problem: integers of ", num_keys, " keys need d of ", num_digits_ * 8,
              " or more, and at most ", int64_t{1} << (3 * split.most_digits), " keys"));
}

size_t KeyCode::element(int64_t n, int64_t v, int64_t turn) const {
  return static_cast<size_t>((n * 8 + v + turn) % d_);
}

void KeyCode::write_key(int64_t j, int64_t turn, std::span<float> elements) const {
  std::ranges::fill(elements, 0.0f);
  for (int64_t n = 0; n < num_digits_; ++n) {
    const int64_t power = std::max<int64_t>(0, n - split_.query_digits + 1);
    elements[element(n, digit(j, n), turn)] = static_cast<float>(int64_t{1} << (3 * power));
  }
}

void KeyCode::write_query(Choice choice, int64_t turn, std::span<float> elements) const {
  std::ranges::fill(elements, 0.0f);
  if (choice.kind == Kind::uniform) return;
  for (int64_t n = choice.kind == Kind::block ? 1 : 0; n < num_digits_; ++n) {
    const int64_t wanted = digit(choice.target, n);
    const int64_t weight = int64_t{1} << (3 * std::min(n, split_.query_digits - 1));
    for (int64_t v = 0; v < 8; ++v) {
      int64_t value = v == wanted ? 0 : -1;
      if (choice.kind == Kind::last) value = (v - wanted) * weight;
      if (choice.kind == Kind::first) value = (wanted - v) * weight;
      elements[element(n, v, turn)] = static_cast<float>(value);
    }
  }
}

KeyCode::Choice KeyCode::choose(std::span<const int64_t> seen, bool may_be_equal, Random random,
                                int64_t draw) {
  if (seen.empty()) return {Kind::uniform, 0};
  const auto count = static_cast<int64_t>(seen.size());
  const int64_t any = seen[static_cast<size_t>(random.integer(draw, 0, count - 1))];
  const int64_t kind = random.stream(1).integer(draw, 0, 7);
  if (kind < 3) return {Kind::last, seen.back()};
  if (kind < 5) return {Kind::first, seen.front()};
  const auto num_near = std::ranges::count_if(seen, [&](int64_t j) { return j / 8 == any / 8; });
  if (kind == 6 && may_be_equal && is_power_of_two(num_near)) return {Kind::block, any};
  if (kind == 7 && may_be_equal && is_power_of_two(count)) return {Kind::uniform, 0};
  return {Kind::target, any};
}

}  // namespace tessera::bench
