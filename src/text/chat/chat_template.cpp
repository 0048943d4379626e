// The public face of chat templates: parsing, rendering with messages, and a model's settings.
// SPDX-License-Identifier: MIT
#include "tessera/text/chat_template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/read_file.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "text/chat/evaluator.h"
#include "text/chat/parser.h"
#include "text/chat/render_state.h"

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

// Adds the members of a JSON object to `dict`; strings in it count as input. `what` names the
// object in messages. Refuses text that is not an object, is nested deeper than max_depth or holds
// integers beyond 64 bits. The rendering pays for what is read.
void read_json_object(RenderState& state, std::string_view json, std::string_view what,
                      int64_t max_depth, Dict& dict) {
  state.pay_bytes(json.size());
  check_no_nul(json, what);
  Reader reader(state, what, max_depth, dict);
  Json::sax_parse(json.begin(), json.end(), &reader);
}

}  // namespace
}  // namespace tessera::chat

namespace tessera {

struct ChatTemplate::Impl {
  TemplateLimits limits;
  chat::ParsedTemplate parsed;
};

namespace {

using chat::Dict;
using chat::RenderState;
using chat::Text;
using chat::Value;

void check_limits(const TemplateLimits& limits) {
  // The parser and the evaluator recurse in proportion to the depth.
  constexpr int64_t kMostDepth = 256;
  if (limits.steps < 1 || limits.output_bytes < 0 || limits.source_bytes < 0 || limits.depth < 1 ||
      limits.depth > kMostDepth) {
    fail(concat("chat template limits: steps ", limits.steps, ", output_bytes ",
                limits.output_bytes, ", depth ", limits.depth, ", source_bytes ",
                limits.source_bytes,
                "; want sizes of 0 or more, steps of 1 or more and a depth of 1 to ", kMostDepth));
  }
}

void set(RenderState& state, Dict& dict, std::string_view name, std::string_view text,
         bool is_control) {
  state.pay_bytes(text.size());
  dict.set(chat::control_text(name), std::make_shared<const Text>(text, is_control));
}

Value make_messages(RenderState& state, std::span<const ChatMessage> messages, int64_t depth) {
  std::vector<Value> items;
  for (const ChatMessage& message : messages) {
    Dict* fields = state.make<Dict>();
    set(state, *fields, "role", message.role, false);
    set(state, *fields, "content", message.content, false);
    if (!message.fields_json.empty()) {
      chat::read_json_object(state, message.fields_json, "fields_json", depth, *fields);
    }
    items.push_back(fields);
  }
  return state.make_list(std::move(items));
}

Dict* make_variables(RenderState& state, std::span<const ChatMessage> messages,
                     const ChatOptions& options, int64_t depth) {
  Dict* variables = state.make<Dict>();
  // Hugging Face passes None for these if there are none, and templates compare them with it.
  variables->set(chat::control_text("tools"), chat::None{});
  variables->set(chat::control_text("documents"), chat::None{});
  variables->set(chat::control_text("add_generation_prompt"), options.add_generation_prompt);
  set(state, *variables, "bos_token", options.bos_token, true);
  set(state, *variables, "eos_token", options.eos_token, true);
  if (!options.variables_json.empty()) {
    chat::read_json_object(state, options.variables_json, "variables_json", depth, *variables);
    expects(!variables->find("messages"),
            "chat template: variables_json sets 'messages'; pass them as ChatMessage");
  }
  variables->set(chat::control_text("messages"), make_messages(state, messages, depth));
  return variables;
}

}  // namespace

ChatTemplate ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  check_limits(limits);
  if (source.size() > static_cast<size_t>(limits.source_bytes)) {
    fail(concat("chat template: the source has ", source.size(), " bytes; at most ",
                limits.source_bytes));
  }
  return ChatTemplate(
      std::make_unique<Impl>(Impl{limits, chat::parse_template(source, limits.depth)}));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::vector<TextPart> ChatTemplate::render(std::span<const ChatMessage> messages,
                                           const ChatOptions& options) const {
  RenderState state(impl_->limits);
  const Dict* variables = make_variables(state, messages, options, impl_->limits.depth);
  const Text text = chat::evaluate(impl_->parsed, state, *variables);
  std::vector<TextPart> parts;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    parts.push_back({std::string(text.bytes().substr(begin, run.end - begin)), run.is_control});
    begin = run.end;
  }
  return parts;
}

namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = 64 << 20;  // tokenizer_config.json lists every added token
constexpr int kMostDepth = 64;

// A token given as a string, or as an object with a string "content"; empty if there is none.
std::string token_of(const Json& config, const char* key, std::string_view origin) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return {};
  const Json& token = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
  if (!token.is_string()) {
    fail(concat(origin, ": '", key, "' must be a string, or an object with a string 'content'"));
  }
  return token.get<std::string>();
}

// The template named "default" from a list of named templates.
std::optional<std::string> default_template(const Json& list, std::string_view origin) {
  for (const Json& entry : list) {
    const auto is_text = [&](const char* key) {
      return entry.is_object() && entry.contains(key) && entry[key].is_string();
    };
    if (!is_text("name") || !is_text("template")) {
      fail(concat(origin, ": 'chat_template' must list objects with 'name' and 'template'"));
    }
    if (entry["name"] == "default") return entry["template"].get<std::string>();
  }
  return {};
}

std::optional<std::string> template_of(const Json& config, std::string_view origin) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) return default_template(*it, origin);
  fail(concat(origin, ": 'chat_template' must be a string or a list of named templates"));
}

Json parse_bounded(std::string_view json, std::string_view origin) {
  if (json.size() > kMostBytes) {
    fail(concat(origin, ": ", json.size(), " bytes; at most ", kMostBytes));
  }
  check_no_nul(json, origin);
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) fail(concat(origin, ": nested deeper than ", kMostDepth, " levels"));
    return true;
  };
  try {
    return Json::parse(json.begin(), json.end(), check_depth);
  } catch (const Json::exception& error) {
    const auto* parse_error = dynamic_cast<const Json::parse_error*>(&error);
    fail(concat(origin, ": not JSON (at byte ", parse_error ? parse_error->byte : 0, ")"));
  }
}

std::optional<std::string> read_if_there(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return {};
  return read_file(path, kMostBytes);
}

}  // namespace

ChatSettings parse_chat_settings(std::string_view json, std::string_view origin) {
  const Json config = parse_bounded(json, origin);
  if (!config.is_object()) fail(concat(origin, ": must be a JSON object"));
  return {template_of(config, origin), token_of(config, "bos_token", origin),
          token_of(config, "eos_token", origin)};
}

ChatSettings load_chat_settings(const std::filesystem::path& folder) {
  ChatSettings settings;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (const auto json = read_if_there(config))
    settings = parse_chat_settings(*json, shown_path(config.native()));
  // A template in its own file takes precedence over the one in tokenizer_config.json.
  const std::filesystem::path own = folder / "chat_template.jinja";
  if (auto source = read_if_there(own)) {
    check_no_nul(*source, shown_path(own.native()));
    settings.template_source = std::move(*source);
  }
  return settings;
}

}  // namespace tessera
