// JSON text as values, read event by event so that depth and size are checked on the way.
// SPDX-License-Identifier: MIT
#include "text/chat/json_input.h"

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::chat {
namespace {

using Json = nlohmann::json;

Value input_text(std::string_view bytes) { return std::make_shared<const Text>(bytes, false); }

class Reader : public nlohmann::json_sax<Json> {
 public:
  Reader(RenderState& state, std::string_view what, int64_t max_depth, Dict& root)
      : state_(state), what_(what), max_depth_(max_depth), root_(&root) {}

  bool null() override { return add(None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse_integer();
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) refuse_integer();
    return add(double{value});
  }
  bool string(string_t& value) override {
    state_.pay_bytes(value.size());
    return add(input_text(value));
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    if (open_.empty() && !is_started_) {
      is_started_ = true;
      return push({.dict = root_});
    }
    Dict* dict = state_.make<Dict>();
    add(dict);
    return push({.dict = dict});
  }
  bool key(string_t& value) override {
    state_.pay_bytes(value.size());
    open_.back().key = input_text(value);
    return true;
  }
  bool end_object() override { return pop(); }
  bool start_array(std::size_t) override {
    List* list = state_.make<List>(ListKind::list, std::vector<Value>());
    add(list);
    return push({.list = list});
  }
  bool end_array() override { return pop(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(concat("chat template: ", what_, " is not JSON (at byte ", position, ")"));
  }

 private:
  struct Container {
    Dict* dict = nullptr;
    List* list = nullptr;
    Value key = {};
  };

  [[noreturn]] void refuse_integer() const {
    fail(concat("chat template: ", what_, " holds an integer beyond 64 bits"));
  }

  bool add(Value value) {
    state_.pay(1);
    if (open_.empty()) fail(concat("chat template: ", what_, " must be a JSON object"));
    Container& container = open_.back();
    if (container.dict) {
      container.dict->set(container.key, std::move(value));
    } else {
      container.list->items.push_back(std::move(value));
    }
    return true;
  }

  bool push(Container container) {
    if (static_cast<int64_t>(open_.size()) >= max_depth_) {
      fail(concat("chat template: ", what_, " is nested deeper than ", max_depth_, " levels"));
    }
    open_.push_back(std::move(container));
    return true;
  }

  bool pop() {
    open_.pop_back();
    return true;
  }

  RenderState& state_;
  std::string_view what_;
  int64_t max_depth_;
  Dict* root_;
  bool is_started_ = false;
  std::vector<Container> open_;
};

}  // namespace

void read_json_object(RenderState& state, std::string_view json, std::string_view what,
                      int64_t max_depth, Dict& dict) {
  state.pay_bytes(json.size());
  check_no_nul(json, what);
  Reader reader(state, what, max_depth, dict);
  Json::sax_parse(json.begin(), json.end(), &reader);
}

}  // namespace tessera::chat
