// Text in runs of one origin, names of values for messages, dictionaries.
// SPDX-License-Identifier: MIT
#include "text/chat/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tessera::chat {

void Text::append(std::string_view bytes, bool is_control) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().is_control == is_control) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), is_control});
  }
}

size_t Text::run_at(size_t position) const {
  const auto ends_after = [](size_t value, const Run& run) { return value < run.end; };
  const auto it = std::upper_bound(runs_.begin(), runs_.end(), position, ends_after);
  return static_cast<size_t>(it - runs_.begin());
}

namespace {

// The kind of a key, then its value.
std::string identity(char kind, std::string_view value) {
  std::string bytes(1, kind);
  bytes.append(value);
  return bytes;
}

std::string text_identity(std::string_view text) { return identity('s', text); }
std::string integer_identity(int64_t number) { return identity('i', std::to_string(number)); }

// Keys that Python considers equal have one identity: 1, 1.0 and true.
std::string identity_of(const Value& key) {
  if (const Text* text = key.text()) return text_identity(text->bytes());
  if (key.is_none()) return identity('n', {});
  if (const bool* flag = key.as<bool>()) return integer_identity(*flag ? 1 : 0);
  if (const int64_t* number = key.as<int64_t>()) return integer_identity(*number);
  const double number = *key.as<double>();
  if (number == std::floor(number) && std::fabs(number) < 9.0e18) {
    return integer_identity(static_cast<int64_t>(number));
  }
  char bits[sizeof number];
  std::memcpy(bits, &number, sizeof number);
  return identity('f', {bits, sizeof number});
}

}  // namespace

std::string_view describe(const Value& value) {
  if (const List* list = value.list()) {
    switch (list->kind) {
      case ListKind::list: return "a list";
      case ListKind::tuple: return "a tuple";
      case ListKind::range: return "a range";
      case ListKind::view: return "a dict view";
      case ListKind::lazy: return "a generator";
    }
  }
  static constexpr std::string_view kNames[] = {
      "undefined", "none",         "a boolean",   "an integer", "a float",    "a string",
      "a list",    "a dictionary", "a namespace", "a macro",    "a function", "a loop"};
  static_assert(std::size(kNames) == std::variant_size_v<Value::Data>);
  return kNames[value.data().index()];
}

Value control_text(std::string_view bytes) { return std::make_shared<const Text>(bytes, true); }

bool Dict::can_be_key(const Value& key) {
  return key.text() || key.is_none() || key.is<bool>() || key.is<int64_t>() || key.is<double>();
}

void Dict::set(const Value& key, Value value) {
  const auto [it, is_new] = index_.try_emplace(identity_of(key), entries_.size());
  if (is_new) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[it->second].second = std::move(value);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto it = index_.find(identity_of(key));
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto it = index_.find(text_identity(key));
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

}  // namespace tessera::chat
