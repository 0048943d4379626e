// Fields that constrain the text of an answer: response_format, guided_* and structured_outputs.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/json_fields.h"
#include "tessera/grammar/constraint.h"

namespace tessera::server {

// A constraint and the field of the body that asks for it.
struct FieldConstraint {
  std::string field;
  ConstraintSpec spec;
};

// None if the body asks for none. Refuses what is malformed; whether a schema or a pattern is
// supported is known once it is compiled.
std::optional<FieldConstraint> read_constraint(Fields& fields);

// The constraints compiled last. Any thread may call it.
class ConstraintCache {
 public:
  static constexpr size_t kMostKept = 32;

  std::shared_ptr<const Constraint> find(const ConstraintSpec& spec);  // null: not kept
  // May take up to a second. What does not compile is refused with status 400 and the field: text
  // is never returned as if it had been constrained.
  std::shared_ptr<const Constraint> compile(const FieldConstraint& given);

 private:
  using Kept = std::pair<ConstraintSpec, std::shared_ptr<const Constraint>>;
  std::mutex mutex_;
  std::list<Kept> kept_;  // used last first
};

}  // namespace tessera::server
