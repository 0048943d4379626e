// A JSON schema as a document: parsed within limits, its references resolved, its parts merged.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "grammar/budget.h"

namespace tessera::grammar {

using Json = nlohmann::ordered_json;  // properties keep their order

[[noreturn]] void refuse_schema(const std::string& path, std::string_view why);

class SchemaDocument {
 public:
  // Refuses text that is not JSON, nests too deep, or has an object with too many or repeated keys.
  SchemaDocument(std::string_view text, Budget& budget);

  const Json& root() const { return root_; }
  // The schema that "#/$defs/x" names.
  const Json& resolve(const Json& reference, const std::string& path) const;
  // The schema without $ref and allOf: one that allows what all of them together allow. Refuses
  // what cannot be said by one schema.
  Json flat(const Json& schema, const std::string& path) const;
  // One schema for two that must both hold.
  Json merged(const Json& a, const Json& b, const std::string& path) const;
  // Whether a keyword restricts nothing.
  static bool is_annotation(std::string_view keyword);

 private:
  Json flat(const Json& schema, const std::string& path, int64_t depth) const;
  void merge_into(Json& whole, const Json& part, const std::string& path) const;
  void merge_keyword(Json& whole, const std::string& keyword, const Json& value,
                     const std::string& path) const;
  void check_extras(const Json& whole, const Json& part, const std::string& path) const;

  Budget& budget_;
  Json root_;
};

}  // namespace tessera::grammar
