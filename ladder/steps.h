// What the tables of steps have in common: names, and whether a step can run here.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/library.h"

namespace tessera::ladder {

// Why a step cannot run on this GPU in this build; empty where it can. `is_present` may be null.
std::string why_missing(Library library, bool (*is_present)());

[[noreturn]] void fail_unknown_step(std::string_view name, const std::string& names);

// Throws, listing the names, if there is no such step.
template <class Step>
const Step& find_by_name(std::span<const Step> steps, std::string_view name) {
  std::string names;
  for (const Step& step : steps) {
    if (step.name == name) return step;
    if (!names.empty()) names += ", ";
    names += step.name;
  }
  fail_unknown_step(name, names);
}

}  // namespace tessera::ladder
