// JSON of answers. Events of a stream are put together as text, because there is one for each
// token.
// SPDX-License-Identifier: MIT
#include "server/answer.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/utf8.h"
#include "server/json_fields.h"

namespace tessera::server {
namespace {

std::string json_string(std::string_view text) {
  const auto is_plain = [](char letter) {
    return letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
  };
  if (std::ranges::all_of(text, is_plain)) return std::string("\"").append(text).append("\"");
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// JSON has no infinity; the log-probability of an impossible token is very low.
std::string logprob_text(double value) { return Json(std::clamp(value, -9999.0, 0.0)).dump(); }

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return !unicode::is_continuation(byte); }));
}

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::cancelled: return "abort";
    case FinishReason::deadline: return "timeout";
    default: return name(reason);
  }
}

Answer::Answer(const ServedModel& model, GenerationRequest request, std::string id, int64_t created)
    : model_(model),
      request_(std::move(request)),
      id_(std::move(id)),
      num_sampled_(request_.prompts.front().num_outputs),
      choices_(request_.prompts.size() * static_cast<size_t>(num_sampled_)),
      prompt_logprobs_(request_.prompts.size()),
      num_unfinished_(choices_.size()) {
  const bool is_chat = request_.api == Api::chat;
  const std::string object = is_chat ? "chat.completion" : "text_completion";
  head_ = "{\"id\":" + json_string(id_) + ",\"object\":\"" + object +
          (is_chat && request_.is_streamed ? ".chunk" : "") +
          "\",\"created\":" + std::to_string(created) + ",\"model\":" + json_string(model.name);
  for (const Request& one : request_.prompts) num_prompt_tokens_ += std::ssize(one.prompt);
  if (!request_.tools) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].calls.emplace(*request_.tools, id_ + "/" + std::to_string(i));
  }
}

std::string_view Answer::finish_of(const Choice& choice) const {
  if (choice.finish == FinishReason::none) return {};
  const bool has_calls = choice.calls && choice.calls->num_calls() > 0;
  if (has_calls && choice.finish == FinishReason::stop) return "tool_calls";
  return finish_name(choice.finish);
}

std::string Answer::token_json(int32_t token) const {
  return json_string(model_.tokenizer->decode(std::span(&token, 1), /*keep_special=*/true));
}

std::string Answer::chat_logprobs(const std::vector<OutputToken>& tokens) const {
  const auto entry = [&](int32_t token, double logprob) {
    const std::string text = model_.tokenizer->decode(std::span(&token, 1), true);
    std::string bytes = "null";  // of a token that is part of a character
    if (text.find(kReplacement) == std::string::npos) {
      bytes = Json(std::vector<uint8_t>(text.begin(), text.end())).dump();
    }
    return "\"token\":" + json_string(text) + ",\"logprob\":" + logprob_text(logprob) +
           ",\"bytes\":" + bytes;
  };
  std::string list;
  for (const OutputToken& one : tokens) {
    std::string top;
    for (const TokenLogprob& other : one.top) {
      top += (top.empty() ? "{" : ",{") + entry(other.token, other.logprob) + "}";
    }
    list += (list.empty() ? "{" : ",{") + entry(one.token, one.logprob) + ",\"top_logprobs\":[" +
            top + "]}";
  }
  return "{\"content\":[" + list + "]}";
}

std::string Answer::completion_logprobs(size_t prompt, const std::vector<OutputToken>& tokens,
                                        bool with_prompt, size_t& offset) const {
  std::string texts, values, tops, offsets;
  const auto add = [&](int32_t token, const std::string& value, const std::string& top) {
    const std::string_view comma = texts.empty() ? "" : ",";
    texts += std::string(comma) + token_json(token);
    values += std::string(comma) + value;
    tops += std::string(comma) + top;
    offsets += std::string(comma) + std::to_string(offset);
    offset += num_characters(model_.tokenizer->decode(std::span(&token, 1)));
  };
  if (with_prompt) {  // its first token was predicted from nothing
    const std::vector<int32_t>& ids = request_.prompts[prompt].prompt;
    const std::vector<float>& known = prompt_logprobs_[prompt];
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string value = i > 0 && i <= known.size() ? logprob_text(known[i - 1]) : "null";
      add(ids[i], value, i == 0 ? "null" : "{" + token_json(ids[i]) + ":" + value + "}");
    }
  }
  for (const OutputToken& one : tokens) {
    Json top = Json::object();
    for (const TokenLogprob& other : one.top) {
      const std::string text = model_.tokenizer->decode(std::span(&other.token, 1), true);
      top.emplace(text, std::clamp<double>(other.logprob, -9999.0, 0.0));
    }
    add(one.token, logprob_text(one.logprob),
        top.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return "{\"tokens\":[" + texts + "],\"token_logprobs\":[" + values + "],\"top_logprobs\":[" +
         tops + "],\"text_offset\":[" + offsets + "]}";
}

std::string Answer::event(size_t index, std::string_view payload, std::string_view logprobs,
                          std::string_view finish) const {
  std::string text = "data: " + head_ + ",\"choices\":[{\"index\":" + std::to_string(index) + ",";
  text += payload;
  text += ",\"logprobs\":";
  text += logprobs.empty() ? "null" : logprobs;
  text += ",\"finish_reason\":";
  text += finish.empty() ? "null" : json_string(finish);
  text += "}]";
  if (request_.wants_usage) text += ",\"usage\":null";
  return text += "}\n\n";
}

std::string Answer::begin_events() {
  if (request_.api != Api::chat) return {};
  std::string text;
  for (size_t i = 0; i < choices_.size(); ++i) {
    text += event(i, R"("delta":{"role":"assistant","content":""})", {}, {});
  }
  return text;
}

// What an event of a chat adds: text, calls, or nothing.
std::string Answer::chat_delta(Choice& choice, std::string_view text, FinishReason finish) {
  CallReader::News news{.content = std::string(text)};
  if (choice.calls) news = choice.calls->take(text, finish != FinishReason::none);
  std::string delta;
  if (!news.content.empty()) delta = "\"content\":" + json_string(news.content);
  if (!news.calls.empty())
    delta += (delta.empty() ? "" : ",") + ("\"tool_calls\":[" + news.calls + "]");
  return delta;
}

std::string Answer::chat_message(Choice& choice) {
  std::string content = choice.text, calls;
  if (choice.calls) {
    content = choice.calls->take(choice.text, /*is_end=*/true).content;
    calls = choice.calls->whole();
  }
  const bool has_content = !content.empty() || calls.empty();
  return "\"message\":{\"role\":\"assistant\",\"content\":" +
         (has_content ? json_string(content) : "null") +
         (calls.empty() ? "" : ",\"tool_calls\":[" + calls + "]") + "}";
}

std::string Answer::token_event(size_t prompt, const SequenceOutput& output, Choice& choice) {
  const auto index = static_cast<size_t>(&choice - choices_.data());
  std::string text = output.text;
  const bool echoes = request_.wants_echo && !choice.has_echoed;
  if (echoes) text = request_.echoes[prompt] + text;
  choice.has_echoed = true;
  const bool has_tokens = request_.wants_logprobs && !output.tokens.empty();
  if (text.empty() && !has_tokens && output.finish == FinishReason::none) return {};
  std::string logprobs;
  if (request_.api == Api::chat) {
    if (has_tokens) logprobs = chat_logprobs(output.tokens);
    const std::string delta = chat_delta(choice, text, output.finish);
    if (delta.empty() && !has_tokens && output.finish == FinishReason::none) return {};
    return event(index, "\"delta\":{" + delta + "}", logprobs, finish_of(choice));
  }
  if (has_tokens || (echoes && request_.wants_logprobs)) {
    logprobs = completion_logprobs(prompt, output.tokens, echoes, choice.text_offset);
  }
  return event(index, "\"text\":" + json_string(text), logprobs, finish_of(choice));
}

std::string Answer::take(size_t prompt, const SequenceOutput& output) {
  Choice& choice = choice_at(prompt, output.index);
  if (choice.finish != FinishReason::none) return {};
  num_cached_tokens_ += output.num_cached_tokens;
  num_generated_tokens_ += std::ssize(output.tokens);
  if (!output.prompt_logprobs.empty()) prompt_logprobs_[prompt] = output.prompt_logprobs;
  choice.num_tokens += std::ssize(output.tokens);
  choice.finish = output.finish;
  if (output.finish != FinishReason::none) --num_unfinished_;
  if (request_.is_streamed) return token_event(prompt, output, choice);
  choice.text += output.text;
  if (!output.embedding.empty()) choice.embedding = output.embedding;
  for (const OutputToken& token : output.tokens) choice.total_logprob += token.logprob;
  if (request_.wants_logprobs) {
    choice.tokens.insert(choice.tokens.end(), output.tokens.begin(), output.tokens.end());
  }
  return {};
}

std::string Answer::usage() const {
  return "{\"prompt_tokens\":" + std::to_string(num_prompt_tokens_) +
         ",\"completion_tokens\":" + std::to_string(num_generated_tokens_) +
         ",\"total_tokens\":" + std::to_string(num_prompt_tokens_ + num_generated_tokens_) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(num_cached_tokens_) +
         "}}";
}

std::string Answer::end_events() {
  std::string text;
  if (request_.wants_usage) {
    text = "data: " + head_ + ",\"choices\":[],\"usage\":" + usage() + "}\n\n";
  }
  return text + "data: [DONE]\n\n";
}

std::string Answer::body() {
  if (request_.api == Api::embeddings) return embedding_body();
  std::string list;
  for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    std::vector<int32_t> order(static_cast<size_t>(num_sampled_));
    std::iota(order.begin(), order.end(), 0);
    if (num_sampled_ > request_.num_choices) {  // the best come first
      const auto mean = [&](int32_t index) {
        const Choice& one = choice_at(prompt, index);
        return one.total_logprob / static_cast<double>(std::max<int64_t>(one.num_tokens, 1));
      };
      std::ranges::stable_sort(order, std::ranges::greater(), mean);
    }
    for (int32_t place = 0; place < request_.num_choices; ++place) {
      Choice& choice = choice_at(prompt, order[static_cast<size_t>(place)]);
      const size_t index =
          prompt * static_cast<size_t>(request_.num_choices) + static_cast<size_t>(place);
      std::string logprobs = "null";
      std::string payload;
      if (request_.api == Api::chat) {
        if (request_.wants_logprobs) logprobs = chat_logprobs(choice.tokens);
        payload = chat_message(choice);
      } else {
        if (request_.wants_logprobs) {
          logprobs =
              completion_logprobs(prompt, choice.tokens, request_.wants_echo, choice.text_offset);
        }
        payload = "\"text\":" + json_string(request_.echoes[prompt] + choice.text);
      }
      list += (list.empty() ? "{" : ",{") + ("\"index\":" + std::to_string(index)) + "," + payload +
              ",\"logprobs\":" + logprobs + ",\"finish_reason\":" + json_string(finish_of(choice)) +
              "}";
    }
  }
  return head_ + ",\"choices\":[" + list + "],\"usage\":" + usage() + "}";
}

}  // namespace tessera::server
