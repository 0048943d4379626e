// Limits of one rendering, and the text it builds.
// SPDX-License-Identifier: MIT
#include "text/chat/render_state.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::chat {

void fail_at(int line, std::string_view what, std::source_location where) {
  constexpr size_t kMostBytes = 400;  // `what` may come from the template
  tessera::fail(concat("chat template, line ", line, ": ", shown(what, kMostBytes)), where);
}

void RenderState::fail_steps() const {
  fail(concat("the template needs more than ", limits_.steps,
              " steps: it loops too long or handles too much text"));
}

void RenderState::fail_depth() const {
  fail(concat("nesting of calls or values deeper than ", limits_.depth, " levels"));
}

void RenderState::check_text_size(size_t bytes) const {
  if (bytes > static_cast<size_t>(limits_.output_bytes)) {
    fail(concat("text of more than ", limits_.output_bytes, " bytes"));
  }
}

Scope& RenderState::push_scope(Scope* parent) {
  pay(1);
  scopes_.push_back(std::make_unique<Scope>(parent));
  return *scopes_.back();
}

void RenderState::pop_scopes(const ScopeMark& mark) {
  if (num_macros_ != mark.num_macros) return;
  scopes_.resize(mark.num_scopes);
}

Value RenderState::make_macro(const MacroStatement& declaration, Scope& scope) {
  ++num_macros_;
  return make<Macro>(declaration, scope);
}

void TextBuilder::append(std::string_view bytes, bool is_control) {
  state_.check_text_size(text_.size() + bytes.size());
  state_.pay_bytes(bytes.size());
  text_.append(bytes, is_control);
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  for (size_t run = text.run_at(begin); begin < end; ++run) {
    const size_t stop = std::min(end, text.runs()[run].end);
    append(text.bytes().substr(begin, stop - begin), text.runs()[run].is_control);
    begin = stop;
  }
}

}  // namespace tessera::chat
