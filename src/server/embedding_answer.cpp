// The answer of /v1/embeddings.
// SPDX-License-Identifier: MIT
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

#include "core/text.h"
#include "server/answer.h"
#include "server/json_fields.h"

namespace tessera::server {
namespace {

std::vector<float> scaled_to_one(std::vector<float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  if (sum == 0) return values;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : values) value = static_cast<float>(double{value} * scale);
  return values;
}

// As many digits as tell the float from its neighbours.
std::string as_list(const std::vector<float>& values) {
  std::string text = "[";
  std::array<char, 32> digits{};
  for (const float value : values) {
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    if (text.size() > 1) text += ',';
    text.append(digits.data(), end.ptr);
  }
  return text + "]";
}

// Of the floats' bytes, the lowest first.
std::string as_base64(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(bits >> (8 * i)));
  }
  std::string text = "\"";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) word = (word << 8) | (j < count ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[(word >> (18 - 6 * j)) & 63u] : '=';
    }
  }
  return text + "\"";
}

}  // namespace

std::string Answer::embedding_body() const {
  std::string list;
  for (size_t i = 0; i < choices_.size(); ++i) {
    std::vector<float> values = choices_[i].embedding;
    if (request_.is_normalized) values = scaled_to_one(std::move(values));
    list +=
        concat(list.empty() ? "" : ",", R"({"object":"embedding","index":)", i, R"(,"embedding":)",
               request_.is_base64 ? as_base64(values) : as_list(values), "}");
  }
  const std::string model = Json(model_.name).dump(-1, ' ', false, Json::error_handler_t::replace);
  return concat(R"({"object":"list","data":[)", list, R"(],"model":)", model,
                R"(,"usage":{"prompt_tokens":)", num_prompt_tokens_, R"(,"total_tokens":)",
                num_prompt_tokens_, "}}");
}

}  // namespace tessera::server
