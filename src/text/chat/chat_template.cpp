// ChatTemplate: a parsed template, and the variables it is rendered with.
// SPDX-License-Identifier: MIT
#include "tessera/text/chat_template.h"

#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/chat/evaluator.h"
#include "text/chat/json_input.h"
#include "text/chat/parser.h"
#include "text/chat/render_state.h"

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
  // Templates compare these with none, as Hugging Face passes them when there are none.
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

}  // namespace tessera
