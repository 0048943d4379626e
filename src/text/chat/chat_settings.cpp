// What a model's folder says about its chat template and its special tokens.
// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "core/read_file.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/text/chat_template.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostBytes = 64 << 20;  // tokenizer_config.json lists every added token
constexpr int kMostDepth = 64;

// A token as a string, or as an object whose content it is; empty where there is none.
std::string token_of(const Json& config, const char* key, std::string_view origin) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return {};
  const Json& token = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
  if (!token.is_string()) {
    fail(concat(origin, ": '", key, "' must be a string, or an object with a string 'content'"));
  }
  return token.get<std::string>();
}

// The template named "default" of a list of them; none where no template has that name.
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

// The whole file; none where there is no such file.
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
  // A template in a file of its own wins over the one in the configuration.
  const std::filesystem::path own = folder / "chat_template.jinja";
  if (auto source = read_if_there(own)) {
    check_no_nul(*source, shown_path(own.native()));
    settings.template_source = std::move(*source);
  }
  return settings;
}

}  // namespace tessera
