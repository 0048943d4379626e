// Rules as expressions: what the compilers of regular expressions, schemas and grammars produce.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/budget.h"
#include "grammar/code_set.h"

namespace tessera::grammar {

using ExprId = int32_t;
using RuleId = int32_t;

struct Expr {
  enum class Kind : uint8_t { text, character, call, sequence, any_of, repeat, graph };
  // Leads from one vertex of a graph to another over an expression.
  struct Arc {
    int32_t from = 0;
    int32_t to = 0;
    int32_t part = 0;
  };
  Kind kind = Kind::text;
  std::string text = {};           // text: bytes; empty matches the empty text
  CodeSet set = {};                // character: one of these
  RuleId rule = -1;                // call
  std::vector<ExprId> parts = {};  // sequence, any_of; repeat has one
  int64_t least = 0;               // repeat
  int64_t most = 0;                // repeat; kNoEnd: any number
  std::vector<Arc> arcs = {};      // graph: from vertex 0 to vertex 1
};
inline constexpr int64_t kNoEnd = -1;
inline constexpr int32_t kGraphStart = 0, kGraphEnd = 1;

// Rules that may call each other. Expressions are made bottom up and may be used several times.
class Rules {
 public:
  explicit Rules(Budget& budget) : budget_(budget) {}

  ExprId text(std::string_view bytes);
  ExprId character(CodeSet set);
  ExprId call(RuleId rule);
  ExprId sequence(std::vector<ExprId> parts);
  ExprId any_of(std::vector<ExprId> parts);  // without parts: matches nothing
  ExprId repeat(ExprId part, int64_t least, int64_t most);
  ExprId graph(std::vector<Expr::Arc> arcs);  // every path from kGraphStart to kGraphEnd
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }

  RuleId add_rule(std::string name);
  void define(RuleId rule, ExprId body) { bodies_[static_cast<size_t>(rule)] = body; }

  const Expr& at(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  int64_t num_rules() const { return std::ssize(names_); }
  const std::string& name(RuleId rule) const { return names_[static_cast<size_t>(rule)]; }
  ExprId body(RuleId rule) const { return bodies_[static_cast<size_t>(rule)]; }  // -1: not defined
  Budget& budget() const { return budget_; }

 private:
  ExprId add(Expr expr);

  Budget& budget_;
  std::vector<Expr> exprs_;
  std::vector<std::string> names_;
  std::vector<ExprId> bodies_;
};

}  // namespace tessera::grammar
