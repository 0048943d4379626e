// The values of a template, and strings that remember which bytes the template wrote.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::chat {

// Bytes in runs of one origin: control bytes were written by the template itself, input bytes came
// from messages and variables. Comparisons ignore the origin.
class Text {
 public:
  struct Run {
    size_t end;  // one past the last byte; a run begins where the previous one ends
    bool is_control;
  };

  Text() = default;
  Text(std::string_view bytes, bool is_control) { append(bytes, is_control); }

  std::string_view bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(std::string_view bytes, bool is_control);
  // The index of the run that holds byte `position`; runs().size() at the end of the text.
  size_t run_at(size_t position) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ in is_control; none is empty
};

using TextRef = std::shared_ptr<const Text>;

struct List;
class Dict;
struct Namespace;
struct Function;
struct Macro;
struct Loop;

struct Undefined {
  std::shared_ptr<const std::string> what;  // "'tools' is undefined"; null: nothing to say
};
struct None {};

// A Value only points at containers and functions: the RenderState that made them owns them, so a
// namespace that contains itself does not leak. Text is shared and immutable.
class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, TextRef, List*, Dict*,
                            Namespace*, Macro*, Function*, Loop*>;

  Value() = default;
  template <class T>
  requires(std::is_constructible_v<Data, T> && !std::is_same_v<T, int>) Value(T data)
      : data_(std::move(data)) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  const Data& data() const { return data_; }

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  const Text* text() const { return is<TextRef>() ? std::get<TextRef>(data_).get() : nullptr; }
  const TextRef& text_ref() const { return std::get<TextRef>(data_); }
  List* list() const { return is<List*>() ? std::get<List*>(data_) : nullptr; }
  Dict* dict() const { return is<Dict*>() ? std::get<Dict*>(data_) : nullptr; }

 private:
  Data data_;
};

// The kind of a value for messages: "a string", "an integer".
std::string_view describe(const Value& value);

// Text written by the template.
Value control_text(std::string_view bytes);

// Owned by a RenderState.
struct Object {
  virtual ~Object() = default;
};

// Python's sequences. `lazy` is a generator: always true, without a length, read once.
enum class ListKind : uint8_t { list, tuple, range, view, lazy };

struct List : Object {
  List(ListKind list_kind, std::vector<Value> list_items)
      : kind(list_kind), items(std::move(list_items)) {}
  ListKind kind;
  std::vector<Value> items;
};

// A mapping in insertion order. Keys are strings, numbers, booleans and none; as in Python, equal
// numbers are one key.
class Dict : public Object {
 public:
  using Entry = std::pair<Value, Value>;

  static bool can_be_key(const Value& key);
  void set(const Value& key, Value value);  // can_be_key(key)
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;  // by key identity
};

struct Namespace : Object {
  Dict fields;
};

class RenderState;
struct Arguments;
using NativeCall = Value (*)(RenderState&, const Value& self, const Arguments&);

// A built-in function, or a method bound to its object.
struct Function : Object {
  Function(std::string_view function_name, NativeCall function, Value bound)
      : name(function_name), call(function), self(std::move(bound)) {}
  std::string_view name;  // of a static table
  NativeCall call;
  Value self;
};

struct MacroStatement;
struct Scope;

struct Macro : Object {
  Macro(const MacroStatement& statement, Scope& defined_in)
      : declaration(&statement), scope(&defined_in) {}
  const MacroStatement* declaration;
  Scope* scope;  // where its free names are looked up
};

// The `loop` variable.
struct Loop : Object {
  std::vector<Value> items;
  size_t index = 0;
  std::vector<Value> last_changed;  // the last arguments of loop.changed()
  bool has_changed = false;
};

}  // namespace tessera::chat
