// The values of a template: what Python has, as far as chat templates use it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "text/chat/text.h"

namespace tessera::chat {

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

// Containers and functions belong to the RenderState that made them, so a namespace that holds
// itself is no leak; a Value only points at them. Text is shared and immutable.
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

// What messages call a value: "a string", "an integer".
std::string_view describe(const Value& value);

// Text the template wrote itself.
Value control_text(std::string_view bytes);

// What a RenderState owns.
struct Object {
  virtual ~Object() = default;
};

// Python's sequences. A lazy one is a generator: always true, without a length, read once.
enum class ListKind : uint8_t { list, tuple, range, view, lazy };

struct List : Object {
  List(ListKind list_kind, std::vector<Value> list_items)
      : kind(list_kind), items(std::move(list_items)) {}
  ListKind kind;
  std::vector<Value> items;
};

// A mapping in order of insertion. Keys are strings, numbers, booleans and none; numbers that are
// equal are one key, as in Python.
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
  std::map<std::string, size_t, std::less<>> index_;  // by the key's identity
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
  std::vector<Value> last_changed;  // what loop.changed() saw last
  bool has_changed = false;
};

}  // namespace tessera::chat
