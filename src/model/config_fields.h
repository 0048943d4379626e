// Typed fields of a configuration file, each read with its valid range.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

// One JSON object. A key whose value is null counts as absent, as for Hugging Face. Refusals name
// the file, the key and the value, and say what is valid.
class Fields {
 public:
  // Keeps a reference to `object`. Messages begin with `prefix`: "config.json: ".
  Fields(const nlohmann::json& object, std::string prefix);

  const nlohmann::json* find(std::string_view key) const;  // null where absent
  bool has(std::string_view key) const { return find(key) != nullptr; }

  int64_t whole(std::string_view key, int64_t low, int64_t high) const;
  std::optional<int64_t> whole_or_none(std::string_view key, int64_t low, int64_t high) const;
  // Finite and within [low, high].
  double number(std::string_view key, double low, double high) const;
  std::optional<double> number_or_none(std::string_view key, double low, double high) const;
  bool flag(std::string_view key, bool otherwise) const;
  std::optional<std::string> text_or_none(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;     // a list of strings, or none
  std::vector<int32_t> ids(std::string_view key, int64_t) const;  // one id or a list, below a limit
  std::optional<Fields> object_or_none(std::string_view key) const;

  [[noreturn]] void refuse(std::string_view key, std::string_view what_is_right) const;
  [[noreturn]] void refuse(std::string_view key, const nlohmann::json& value,
                           std::string_view what_is_right) const;
  [[noreturn]] void refuse_missing(std::string_view key) const;
  const std::string& prefix() const { return prefix_; }

 private:
  const nlohmann::json* object_;
  std::string prefix_;
};

struct ModelConfig;
// Sets rope_theta and rope_scaling, from rope_parameters or, in older files, from rope_theta and
// rope_scaling. Where yarn reaches further than max_positions, which must be known, raises that
// too.
void read_rope(const Fields& fields, ModelConfig& config);

}  // namespace tessera::model
