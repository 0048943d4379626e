// Responses as text.
// SPDX-License-Identifier: MIT
#include <array>
#include <charconv>

#include "server/http.h"

namespace tessera::server {

std::string_view status_text(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Payload Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    default: return "Unknown";
  }
}

std::string response_head(const HttpResponse& response, int64_t length, bool is_kept) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head += status_text(response.status);
  head += "\r\nServer: tessera\r\n";
  if (response.status != 204) {
    if (!response.type.empty()) head += "Content-Type: " + response.type + "\r\n";
    head += length < 0 ? std::string("Transfer-Encoding: chunked\r\n")
                       : "Content-Length: " + std::to_string(length) + "\r\n";
  }
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  head += is_kept ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string chunk_of(std::string_view text) {
  constexpr std::string_view kEnd = "\r\n";
  std::array<char, 16> size{};
  char* const end = std::to_chars(size.data(), size.data() + size.size(), text.size(), 16).ptr;
  std::string chunk;
  chunk.reserve(size.size() + text.size() + 2 * kEnd.size());
  return chunk.append(size.data(), end).append(kEnd).append(text).append(kEnd);
}

}  // namespace tessera::server
