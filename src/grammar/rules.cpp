// Construction of expressions.
// SPDX-License-Identifier: MIT
#include "grammar/rules.h"

#include <utility>

namespace tessera::grammar {

ExprId Rules::add(Expr expr) {
  budget_.check_time();
  budget_.take_memory(static_cast<int64_t>(
      sizeof(Expr) + expr.text.size() + expr.set.ranges().size() * sizeof(CodeRange) +
      expr.parts.size() * sizeof(ExprId) + expr.arcs.size() * sizeof(Expr::Arc)));
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Rules::text(std::string_view bytes) {
  return add({.kind = Expr::Kind::text, .text = std::string(bytes)});
}

ExprId Rules::character(CodeSet set) {
  return add({.kind = Expr::Kind::character, .set = std::move(set)});
}

ExprId Rules::call(RuleId rule) { return add({.kind = Expr::Kind::call, .rule = rule}); }

ExprId Rules::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Expr::Kind::sequence, .parts = std::move(parts)});
}

ExprId Rules::any_of(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Expr::Kind::any_of, .parts = std::move(parts)});
}

ExprId Rules::repeat(ExprId part, int64_t least, int64_t most) {
  return add({.kind = Expr::Kind::repeat, .parts = {part}, .least = least, .most = most});
}

ExprId Rules::graph(std::vector<Expr::Arc> arcs) {
  return add({.kind = Expr::Kind::graph, .arcs = std::move(arcs)});
}

RuleId Rules::add_rule(std::string name) {
  budget_.take_memory(static_cast<int64_t>(name.size()) + 64);
  names_.push_back(std::move(name));
  bodies_.push_back(-1);
  return static_cast<RuleId>(names_.size() - 1);
}

}  // namespace tessera::grammar
