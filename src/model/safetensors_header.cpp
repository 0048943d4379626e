// A state machine over the JSON parser's events. The format has three levels, so deeper nesting is
// refused at once, and duplicate names are noticed before one replaces the other.
// SPDX-License-Identifier: MIT
#include "model/safetensors_header.h"

#include <optional>
#include <set>

#include "core/text.h"
#include "model/bounded_json.h"
#include "model/safetensors.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

// Every handler returns true to continue, or throws to refuse.
class HeaderEvents final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderEvents(std::string_view origin) : origin_(origin) {}
  std::vector<HeaderEntry> take() { return std::move(entries_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a number that is not a whole one below 2^64");
  }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::list) unexpected("a number");
    if (list_.size() == (field_ == Field::shape ? kMaxStoredRank : 2)) {
      unexpected("a list that is too long");
    }
    list_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::metadata) return true;
    if (level_ != Level::entry || field_ != Field::type) unexpected("a string");
    entries_.back().type = value;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (level_) {
      case Level::document: level_ = Level::names; return true;
      case Level::names:
        if (name_ == kMetadata) {
          level_ = Level::metadata;
        } else {
          level_ = Level::entry;
          seen_ = {};
          entries_.emplace_back().name = name_;
        }
        return true;
      default: unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    if (level_ == Level::entry) {
      begin_field(key);
      return true;
    }
    std::set<std::string>& names = level_ == Level::metadata ? metadata_keys_ : names_;
    if (!names.insert(key).second) {
      fail(concat(origin_, level_ == Level::metadata ? ": the metadata '" : ": the tensor '",
                  shown(key), "' appears twice"));
    }
    if (level_ == Level::names) name_ = key;
    return true;
  }

  bool end_object() override {
    if (level_ == Level::entry) {
      for (const Field field : {Field::type, Field::shape, Field::offsets}) {
        if (!has_seen(field)) refuse(concat("has no ", name_of(field)));
      }
    }
    level_ = level_ == Level::names ? Level::document : Level::names;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::entry || field_ == Field::type) unexpected("a list");
    level_ = Level::list;
    list_.clear();
    return true;
  }

  bool end_array() override {
    level_ = Level::entry;
    HeaderEntry& entry = entries_.back();
    if (field_ == Field::shape) {
      entry.shape = list_;
      return true;
    }
    if (list_.size() != 2) refuse(concat("has ", list_.size(), " data_offsets; 2 are needed"));
    entry.begin = list_[0];
    entry.end = list_[1];
    return true;
  }

  bool parse_error(std::size_t byte, const std::string&, const json::exception&) override {
    fail(concat(origin_, ": the header is not JSON at byte ", byte,
                "; this is not a safetensors file, or a damaged one"));
  }

 private:
  enum class Level { document, names, metadata, entry, list };
  enum class Field { type, shape, offsets };

  static std::string_view name_of(Field field) {
    constexpr std::string_view kNames[] = {"dtype", "shape", "data_offsets"};
    return kNames[static_cast<size_t>(field)];
  }
  bool has_seen(Field field) const { return seen_[static_cast<size_t>(field)]; }

  void begin_field(const std::string& key) {
    for (const Field field : {Field::type, Field::shape, Field::offsets}) {
      if (key != name_of(field)) continue;
      if (has_seen(field)) refuse(concat("has ", key, " twice"));
      seen_[static_cast<size_t>(field)] = true;
      field_ = field;
      return;
    }
    refuse(concat("has the unknown field '", shown(key), "'"));
  }

  [[noreturn]] void refuse(std::string_view why) const {
    fail(concat(origin_, ": tensor '", shown(name_), "' ", why));
  }

  // A value of a kind that is not allowed at this place.
  [[noreturn]] void unexpected(std::string_view what) const {
    switch (level_) {
      case Level::document: fail(concat(origin_, ": the header is ", what, ", not an object"));
      case Level::names:
        fail(concat(origin_, ": '", shown(name_), "' is ", what, ", not an object"));
      case Level::metadata:
        fail(concat(origin_, ": ", kMetadata, " holds ", what, "; it may hold strings only"));
      default: refuse(concat("has ", what, " as its ", name_of(field_)));
    }
  }

  std::string_view origin_;
  Level level_ = Level::document;
  Field field_ = Field::type;
  std::string name_;  // the tensor name seen last
  std::array<bool, 3> seen_{};
  std::vector<uint64_t> list_;
  std::set<std::string> names_;
  std::set<std::string> metadata_keys_;
  std::vector<HeaderEntry> entries_;
};

}  // namespace

std::vector<HeaderEntry> read_header(std::string_view text, std::string_view origin) {
  // JSON permits white space first; the format does not.
  if (!text.starts_with('{')) {
    fail(concat(origin, ": the header begins with '", shown(text.substr(0, 8)),
                "', not with an object; this is not a safetensors file, or a damaged one"));
  }
  check_no_nul(text, concat(origin, ": the header"));
  HeaderEvents events(origin);
  // Refusals throw, so a parse that returns has succeeded.
  json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

}  // namespace tessera::model
