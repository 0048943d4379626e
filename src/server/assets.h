// Files that are part of the program: src/server/page.html and src/server/openapi.json.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace tessera::server {

std::string_view page_html();
std::string_view openapi_json();

}  // namespace tessera::server
