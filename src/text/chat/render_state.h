// What one rendering may use and owns: steps, depth, the objects it made, the line it is at.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/text/chat_template.h"
#include "text/chat/value.h"

namespace tessera::chat {

// Throws Error: "chat template, line 12: what". `what` is shown as one line of bounded length.
[[noreturn]] void fail_at(int line, std::string_view what,
                          std::source_location where = std::source_location::current());

// The names of one block.
struct Scope {
  explicit Scope(Scope* enclosing) : parent(enclosing) {}
  Scope* parent;
  std::unordered_map<int, Value> names;
};

class RenderState {
 public:
  explicit RenderState(const TemplateLimits& limits) : limits_(limits), steps_left_(limits.steps) {}
  RenderState(const RenderState&) = delete;
  RenderState& operator=(const RenderState&) = delete;

  int line = 1;  // of the node being evaluated

  [[noreturn]] void fail(std::string_view what,
                         std::source_location where = std::source_location::current()) const {
    fail_at(line, what, where);
  }

  // Each unit of work is paid for before it is done: a node, a loop round, an element made, 64
  // bytes handled. So the number of steps bounds both time and memory.
  void pay(int64_t steps) {
    if (steps > steps_left_) fail_steps();
    steps_left_ -= steps;
  }
  void pay_elements(size_t count) { pay(static_cast<int64_t>(count)); }
  void pay_bytes(size_t bytes) { pay(1 + static_cast<int64_t>(bytes / 64)); }
  // Refuses a string of more bytes than the limits allow.
  void check_text_size(size_t bytes) const;

  // Counts one level of nesting while it lives; refuses more than `most`.
  class Level {
   public:
    Level(RenderState& state, int64_t& depth, int64_t most) : depth_(depth) {
      if (depth >= most) state.fail_depth();
      ++depth_;
    }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int64_t& depth_;
  };
  Level enter_node() { return Level(*this, num_nodes_, kNodesPerLevel * limits_.depth); }
  Level enter_value() { return Level(*this, num_values_, limits_.depth); }
  Level enter_call() { return Level(*this, num_calls_, limits_.depth); }

  // The object lives as long as the RenderState.
  template <class T, class... Parts>
  T* make(Parts&&... parts) {
    pay(1);
    auto object = std::make_unique<T>(std::forward<Parts>(parts)...);
    T* made = object.get();
    objects_.push_back(std::move(object));
    return made;
  }
  Value make_list(std::vector<Value> items, ListKind kind = ListKind::list) {
    return make<List>(kind, std::move(items));
  }

  Scope& push_scope(Scope* parent);
  // Frees the scopes made since `mark`, unless a macro made since then may still refer to them.
  struct ScopeMark {
    size_t num_scopes;
    size_t num_macros;
  };
  ScopeMark mark_scopes() const { return {scopes_.size(), num_macros_}; }
  void pop_scopes(const ScopeMark& mark);
  Value make_macro(const MacroStatement& declaration, Scope& scope);

 private:
  // A macro call nests a handful of nodes; with it, the stack is bounded to about 1 MB.
  static constexpr int64_t kNodesPerLevel = 8;

  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_depth() const;

  TemplateLimits limits_;
  int64_t steps_left_;
  int64_t num_nodes_ = 0;
  int64_t num_values_ = 0;
  int64_t num_calls_ = 0;
  size_t num_macros_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
  std::vector<std::unique_ptr<Scope>> scopes_;
};

// Builds a string piece by piece, pays for each, and refuses to exceed the limits.
class TextBuilder {
 public:
  explicit TextBuilder(RenderState& state) : state_(state) {}
  void append(std::string_view bytes, bool is_control);
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t end);
  size_t size() const { return text_.size(); }
  const Text& text() const { return text_; }
  Text take() { return std::move(text_); }
  Value take_value() { return std::make_shared<const Text>(std::move(text_)); }

 private:
  RenderState& state_;
  Text text_;
};

}  // namespace tessera::chat
