// Constraints of an answer's text.
// SPDX-License-Identifier: MIT
#include "server/constraint.h"

#include "core/text.h"

namespace tessera::server {
namespace {

void refuse(const char* field) {
  throw ApiError(400, concat(field, " is not supported by this server; leave it out"), field);
}

}  // namespace

void read_constraint(Fields& fields, Request&) {
  if (const Json* format = fields.find("response_format")) {
    const bool is_text = format->is_object() && format->value("type", Json()) == "text";
    if (!is_text) refuse("response_format");
  }
  for (const char* field :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"}) {
    if (fields.find(field) != nullptr) refuse(field);
  }
  const Json* choice = fields.find("tool_choice");
  const bool has_no_tools = choice != nullptr && *choice == "none";
  for (const char* field : {"tools", "functions"}) {
    const Json* tools = fields.find(field);
    if (tools != nullptr && !tools->empty() && !has_no_tools) refuse(field);
  }
}

}  // namespace tessera::server
