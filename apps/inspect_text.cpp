// The page's sections.
// SPDX-License-Identifier: MIT
#include "apps/inspect_text.h"

#include "apps/output.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;

std::string padded(std::string text, size_t width, bool is_right = false) {
  if (text.size() >= width) return text;
  const std::string spaces(width - text.size(), ' ');
  return is_right ? spaces + text : text + spaces;
}

std::string bytes_at(const Json& json) { return show_bytes(json.get<int64_t>()); }

std::string percent(const Json& share) { return fixed(share.get<double>() * 100, 1) + " %"; }

std::string text_of(const Json& json) { return json.get<std::string>(); }

std::string config_text(const Json& json) {
  const Json& c = json["config"];
  const int64_t window = c["window"].get<int64_t>();
  std::string rope = concat("rope theta ", c["rope"]["theta"].get<double>());
  if (text_of(c["rope"]["scaling"]) != "none") {
    rope += concat(", ", text_of(c["rope"]["scaling"]), " x", c["rope"]["factor"].get<double>());
  }
  return concat(
      text_of(c["architecture"]), ", ", show_count(c["parameters"].get<int64_t>()),
      " parameters, stored as ", text_of(c["dtype"]), "\n  ", c["num_layers"], " layers, hidden ",
      c["hidden"], ", inter ", c["inter"], ", heads ", c["num_heads"], ", KV heads ",
      c["num_kv_heads"], ", head_dim ", c["head_dim"], ", vocab ", c["vocab"], "\n  context ",
      c["max_positions"], ", ", rope, window > 0 ? concat(", window ", window) : std::string(),
      c["tied_embeddings"].get<bool>() ? ", tied embeddings" : "", "\n  ",
      json["has_tokenizer"].get<bool>() ? "tokenizer.json" : "no tokenizer.json", ", ",
      json["has_chat_template"].get<bool>() ? "chat template" : "no chat template: a base model",
      "\n");
}

std::string tensors_text(const Json& tensors) {
  std::string text = concat("Tensors: ", tensors["count"]);
  for (const auto& [type, count] : tensors["elements_by_type"].items()) {
    text += concat(", ", show_count(count.get<int64_t>()), " elements of ", type);
  }
  text += "\n";
  if (!tensors.contains("table")) return text;
  for (const Json& tensor : tensors["table"]) {
    text += concat("  ", padded(shown(text_of(tensor["name"])), 48),
                   padded(text_of(tensor["type"]), 6), padded(tensor["shape"].dump(), 18),
                   padded(bytes_at(tensor["bytes"]), 10, true), "\n");
  }
  return text;
}

std::string files_text(const Json& files) {
  std::string text = "Files\n";
  for (const auto& [name, bytes] : files.items()) {
    text += concat("  ", padded(shown(name), 40), padded(bytes_at(bytes), 10, true), "\n");
  }
  return text;
}

std::string fit_text(const Json& json) {
  std::string text =
      "Sequences that fit beside the weights, by context (keys and values in bf16)\n";
  std::string header = "  " + padded("memory", 22) + padded("weights", 8);
  bool has_header = false;
  for (const Json& row : json["fit"]) {
    std::string line =
        "  " + padded(concat(text_of(row["memory"]), ", ", bytes_at(row["memory_bytes"])), 22) +
        padded(text_of(row["weights"]), 8);
    for (const auto& [context, count] : row["sequences_by_context"].items()) {
      if (!has_header) header += padded(context, 10, true);
      line += padded(show_count(count.get<int64_t>()), 10, true);
    }
    if (!has_header) text += header + "\n";
    has_header = true;
    text += line + "\n";
  }
  return text;
}

std::string cache_text(const Json& json) {
  const Json& cache = json["kv_cache"];
  const Json& weights = json["weight_bytes"];
  return concat("Memory\n  weights ", bytes_at(weights["f32"]), " in f32, ",
                bytes_at(weights["bf16"]), " in bf16, ", bytes_at(weights["int8"]), " as int8\n  ",
                "keys and values ", show_count(cache["bytes_per_token"]["bf16"].get<int64_t>()),
                " bytes a token in bf16, ",
                show_count(cache["bytes_per_token"]["f32"].get<int64_t>()), " in f32\n  ",
                "sequences of ", cache["lengths"][0], " to ", cache["lengths"][1],
                " tokens: pages of ", cache["page_size"], " waste ", percent(cache["paged_waste"]),
                ", whole contexts ", percent(cache["contiguous_waste"]), ";\n  pages take ",
                percent(cache["paged_share_of_contiguous"]), " of the memory\n");
}

}  // namespace

std::string inspect_text(const Json& json) {
  if (json.contains("file")) {
    return concat(shown_path(text_of(json["file"])), ": ", bytes_at(json["bytes"]), "\n",
                  tensors_text(json["tensors"]));
  }
  return concat(shown_path(text_of(json["model"])), ": ", config_text(json),
                files_text(json["files"]), tensors_text(json["tensors"]), cache_text(json),
                fit_text(json));
}

}  // namespace tessera::apps
