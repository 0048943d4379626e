// Constraints of every kind to one automaton.
// SPDX-License-Identifier: MIT
#include "tessera/grammar/constraint.h"

#include <utility>

#include "core/text.h"
#include "grammar/automaton.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"
#include "grammar/regex.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

using namespace grammar;

RuleId choice_rule(Rules& rules, const std::vector<std::string>& choices) {
  if (choices.empty()) fail("constraint: choice has no choices; give at least one");
  std::vector<ExprId> parts;
  int64_t num_bytes = 0;
  for (const std::string& choice : choices) {
    if (choice.empty()) fail("constraint: a choice is empty; leave it out");
    num_bytes += std::ssize(choice);
    if (num_bytes > rules.budget().limits().source_bytes) {
      fail(concat("constraint: the choices have more than ", rules.budget().limits().source_bytes,
                  " bytes"));
    }
    parts.push_back(rules.text(choice));
  }
  const RuleId root = rules.add_rule("choice");
  rules.define(root, rules.any_of(std::move(parts)));
  return root;
}

RuleId root_rule(Rules& rules, const ConstraintSpec& spec) {
  switch (spec.kind) {
    case ConstraintKind::json_schema: return compile_schema(rules, spec.text, spec.max_whitespace);
    case ConstraintKind::json_object: return compile_json_object(rules, spec.max_whitespace);
    case ConstraintKind::choice: return choice_rule(rules, spec.choices);
    case ConstraintKind::grammar: return parse_ebnf(rules, spec.text);
    case ConstraintKind::regex: break;
  }
  const RuleId root = rules.add_rule("regex");
  rules.define(root, parse_regex(rules, spec.text, RegexUse::whole_text));
  return root;
}

}  // namespace

std::string_view name(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::json_schema: return "json_schema";
    case ConstraintKind::json_object: return "json_object";
    case ConstraintKind::regex: return "regex";
    case ConstraintKind::choice: return "choice";
    case ConstraintKind::grammar: return "grammar";
  }
  return "unknown";
}

Constraint::Constraint(Automaton automaton)
    : automaton_(std::make_unique<const Automaton>(std::move(automaton))) {}
Constraint::~Constraint() = default;

std::shared_ptr<const Constraint> Constraint::compile(const ConstraintSpec& spec,
                                                      const ConstraintLimits& limits) {
  Budget budget(limits);
  Rules rules(budget);
  const RuleId root = root_rule(rules, spec);
  return std::make_shared<const Constraint>(build_automaton(rules, root));
}

bool Constraint::matches(std::string_view text) const {
  Machine machine(*automaton_);
  int32_t set = machine.start();
  for (const char c : text) {
    set = machine.after(set, static_cast<uint8_t>(c));
    if (set == Machine::kDead) return false;
    if (machine.num_sets() < Machine::kMostSets / 2) continue;
    StackSet place = machine.at(set);
    machine.clear();
    set = machine.number_of(std::move(place));
  }
  return machine.may_leave(set);
}

}  // namespace tessera
