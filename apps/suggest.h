// "Did you mean": the known word nearest to a mistyped one.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::apps {

// Letters inserted, deleted, replaced or swapped with their neighbour to turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest candidate, where it is near enough to be meant: a third of the word's letters may
// differ, or the word is the candidate's beginning. Empty otherwise; the first of equals.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "; did you mean --seed?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace tessera::apps
