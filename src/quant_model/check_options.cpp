// Which methods, codes, inputs and files go together.
// SPDX-License-Identifier: MIT
#include "quant_model/check_options.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::quant {

bool needs_samples(const ModelQuantOptions& options) {
  return options.method != Method::rtn || options.has_static_inputs || options.calibrates_kv;
}

void check_options(const ModelQuantOptions& options) {
  const CodeFormat codes = options.format.codes;
  const bool is_integer = codes == CodeFormat::int4 || codes == CodeFormat::int8;
  const auto refuse = [&](std::string_view why) {
    fail(concat("quantize: method ", name(options.method), " with ", name(codes), " weights in ",
                name(options.files), " files: ", why));
  };
  if (options.method == Method::gptq && !is_integer) refuse("gptq makes int4 and int8; use rtn");
  if (options.method == Method::awq && codes != CodeFormat::int4) refuse("awq makes int4");
  if (options.method == Method::smoothquant && codes != CodeFormat::int8 &&
      codes != CodeFormat::fp8) {
    refuse("smoothquant makes int8 and fp8");
  }
  if (options.quantizes_inputs && codes == CodeFormat::int4) {
    refuse("inputs of 8 bits go with weights of 8 bits");
  }
  if (options.files == FileFormat::gptq && !is_integer) refuse("these files hold int4 and int8");
  if (options.files != FileFormat::compressed_tensors && options.quantizes_inputs) {
    refuse("these files say nothing about inputs; use compressed-tensors");
  }
  if (options.has_static_inputs && !options.quantizes_inputs) {
    refuse("static scales are for inputs of 8 bits, which were not asked for");
  }
  if (options.has_static_inputs && codes == CodeFormat::fp8_block) {
    refuse("blocks go with inputs that are scaled as they come");
  }
  if (options.files != FileFormat::compressed_tensors && options.calibrates_kv) {
    refuse("these files hold no scales of keys and values; use compressed-tensors");
  }
  if (needs_samples(options) && options.samples.empty()) {
    refuse("it needs calibration samples, and there are none");
  }
  for (const std::vector<int32_t>& sample : options.samples) {
    if (sample.empty() || sample.size() != options.samples.front().size()) {
      fail(concat("quantize: samples of ", sample.size(), " and ", options.samples.front().size(),
                  " tokens; they must all have the same length, at least 1"));
    }
  }
}

std::optional<Method> find_method(std::string_view text) {
  for (const Method method : kAllMethods) {
    if (name(method) == text) return method;
  }
  return std::nullopt;
}

std::optional<FileFormat> find_file_format(std::string_view text) {
  for (const FileFormat format : kAllFileFormats) {
    if (name(format) == text) return format;
  }
  return std::nullopt;
}

}  // namespace tessera::quant
