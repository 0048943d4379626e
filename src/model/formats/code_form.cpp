// Forms of quantised weights: which fit, and which hold several weights.
// SPDX-License-Identifier: MIT
#include "model/formats/code_form.h"

#include <numeric>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr int64_t kBlock = 128;     // of fp8_block
constexpr int64_t kLeastGroup = 8;  // of int4: with fewer, scales take more memory than codes

bool is_signed_integer(DType dtype) { return dtype == DType::i4 || dtype == DType::i8; }

}  // namespace

std::string to_string(const CodeForm& form) {
  std::string text(name(form.codes));
  if (form.has_table) text += " of a table";
  if (form.rows_per_scale > 1) {
    text += concat(", blocks of ", form.rows_per_scale, " x ", form.group);
  } else if (form.group > 0) {
    text += concat(", groups of ", form.group);
  } else {
    text += ", a scale per row";
  }
  if (form.has_zero_points) text += ", zero points";
  if (form.has_order) text += ", sorted columns";
  return text;
}

int64_t form_bytes(const CodeForm& form, int64_t n, int64_t k) {
  const int64_t groups = form.group > 0 ? divide_up(k, form.group) : 1;
  const int64_t scales = divide_up(n, form.rows_per_scale) * groups;
  return storage_bytes(form.codes, n * k) + scales * (form.has_zero_points ? 5 : 4) +
         (form.has_order ? 4 * k : 0) + (form.has_table ? 4 * kTableSize : 0);
}

bool fits(const CodeForm& form, int64_t k) {
  if (form.codes == DType::i4 && (k % 2 != 0 || form.group % 2 != 0)) return false;
  return form.rows_per_scale > 1 || form.group == 0 || k % form.group == 0;
}

std::optional<CodeForm> form_of(WeightFormat format, int64_t k, int64_t group,
                                const std::string& tensor) {
  CodeForm form;
  switch (format) {
    case WeightFormat::stored:
    case WeightFormat::plain: return std::nullopt;
    case WeightFormat::int8: return form;
    case WeightFormat::fp8: form.codes = DType::e4m3; return form;
    case WeightFormat::fp8_block:
      return CodeForm{.codes = DType::e4m3, .group = kBlock, .rows_per_scale = kBlock};
    case WeightFormat::int4: break;
  }
  form = {.codes = DType::i4,
          .group = std::gcd(group, k),
          .has_zero_points = true,
          .scale = DType::bf16};
  if (form.group < kLeastGroup || !fits(form, k)) {
    fail(concat("load_model: tensor '", tensor, "' has ", k, " columns, which do not divide into ",
                "groups of ", group, "; use another group, or int8"));
  }
  return form;
}

std::optional<CodeForm> common_form(std::span<const CodeForm> forms, int64_t k) {
  CodeForm common = forms.front();
  for (const CodeForm& form : forms.subspan(1)) {
    if (form == common) continue;
    if (form.has_order != common.has_order || form.has_table != common.has_table) {
      return std::nullopt;
    }
    if (form.codes != common.codes) {
      const bool are_signed = is_signed_integer(form.codes) && is_signed_integer(common.codes) &&
                              !form.has_zero_points && !common.has_zero_points;
      if (!are_signed) return std::nullopt;
      common.codes = DType::i8;
    }
    if (form.rows_per_scale != common.rows_per_scale) {
      common.rows_per_scale = 1;
      common.group = std::gcd(common.group, form.group);
    }
    // A scale per row is a group of k; sorted columns have one size of group.
    if (form.has_order && form.group != common.group) return std::nullopt;
    if (form.group != common.group) {
      common.group = std::gcd(common.group > 0 ? common.group : k, form.group > 0 ? form.group : k);
    }
    common.has_zero_points = common.has_zero_points || form.has_zero_points;
    if (form.scale != common.scale) common.scale = DType::f32;
  }
  if (!fits(common, k)) return std::nullopt;
  return common;
}

CodeForm by_row(const CodeForm& form) {
  CodeForm rows = form;
  rows.rows_per_scale = 1;
  return rows;
}

}  // namespace tessera::model
