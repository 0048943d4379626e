// What is refused of quantised checkpoints, and what is ignored.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/formats/twins.h"

namespace tessera::testing {
namespace {

using model::LoadOptions;
using model::WeightFormat;

class EveryFormatRefuses : public ::testing::TestWithParam<Format> {};

TEST_P(EveryFormatRefuses, NamesATensorThatIsMissingOrOfAnotherShape) {
  const Format& format = GetParam();
  Twins reference;
  std::vector<RawTensor> all;
  write_twins(reference, format, "", [&](auto& tensors) { all = tensors; });
  for (const RawTensor& tensor : all) {
    if (tensor.name.find("layers.1.mlp.down_proj.") == std::string::npos) continue;
    const bool is_optional = tensor.name.ends_with(".g_idx") && !format.kind.is_sorted;
    for (const bool is_missing : {true, false}) {
      if (is_missing && is_optional) continue;
      Twins twins;
      write_twins(twins, format, "", [&](std::vector<RawTensor>& tensors) {
        const auto found = std::ranges::find(tensors, tensor.name, &RawTensor::name);
        if (is_missing) {
          tensors.erase(found);
        } else {
          found->shape.insert(found->shape.end(), 2, 1);
        }
      });
      const std::string message = message_of([&] { load(twins.quantised, {}); });
      EXPECT_NE(message.find("'" + tensor.name + "'"), std::string::npos) << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantised, EveryFormatRefuses, ::testing::ValuesIn(formats()),
                         [](const auto& info) { return info.param.name; });

std::string refusal(const std::string& format, const LoadOptions& options,
                    const std::function<void(std::vector<RawTensor>&)>& change) {
  Twins twins;
  write_twins(twins, format_named(format), "", change);
  return message_of([&] { load(twins.quantised, options); });
}

TEST(QuantizedRefusal, RefusesPartsThatSortTheirColumnsDifferently) {
  const auto swap_two = [](std::vector<RawTensor>& tensors) {
    std::string& groups = tensor_of(tensors, "model.layers.0.self_attn.k_proj.g_idx").bytes;
    size_t other = 4;
    while (groups[other] == groups[0]) other += 4;
    std::swap(groups[0], groups[other]);
  };
  const std::string message = refusal("GptqActOrder", {}, swap_two);
  EXPECT_NE(message.find("self_attn.k_proj.weight' have different columns"), std::string::npos)
      << message;
  EXPECT_EQ(refusal("GptqActOrder", {.format = WeightFormat::plain}, swap_two), "");
}

TEST(QuantizedRefusal, RefusesGroupsThatDoNotExistOrAreSortedWithoutSayingSo) {
  const auto set_group = [](char value) {
    return [=](std::vector<RawTensor>& tensors) {
      tensor_of(tensors, "model.layers.0.mlp.down_proj.g_idx").bytes[0] = value;
    };
  };
  EXPECT_NE(refusal("GptqActOrder", {}, set_group(100)).find("holds 100 at [0]; the layer has 8"),
            std::string::npos);
  EXPECT_NE(refusal("GptqZeroPoints", {}, set_group(1)).find("set desc_act in config.json"),
            std::string::npos);
}

// A stored 15 means 16 to some readers and 0 to others.
TEST(QuantizedRefusal, RefusesZeroPointsThatReadersUnderstandDifferently) {
  const std::string message = refusal("GptqZeroPoints", {}, [](std::vector<RawTensor>& tensors) {
    tensor_of(tensors, "model.layers.1.mlp.up_proj.qzeros").bytes[0] |= 0x0f;
  });
  EXPECT_NE(message.find("up_proj.qzeros' holds 15, a zero point of 16 or of 0"), std::string::npos)
      << message;
}

TEST(QuantizedRefusal, RefusesCodesThatAreNotSymmetricAlthoughConfigSaysSo) {
  const std::string message = refusal("GptqSymmetric", {}, [](std::vector<RawTensor>& tensors) {
    std::string& zeros = tensor_of(tensors, "model.layers.1.mlp.up_proj.qzeros").bytes;
    std::fill(zeros.begin(), zeros.end(), '\0');  // a zero point of 1 everywhere
  });
  EXPECT_NE(message.find("up_proj.weight' has code"), std::string::npos) << message;
  EXPECT_NE(message.find("must not say that it is symmetric"), std::string::npos) << message;
}

TEST(QuantizedRefusal, RefusesAScaleOfMxfp4ThatIsNoNumber) {
  const auto spoil = [](std::vector<RawTensor>& tensors) {
    // Row 5, group 2 of 4.
    tensor_of(tensors, "model.layers.0.self_attn.k_proj.weight_scale").bytes[5 * 4 + 2] = '\xff';
  };
  for (const WeightFormat format : {WeightFormat::stored, WeightFormat::plain}) {
    const std::string message = refusal("Mxfp4", {.format = format}, spoil);
    EXPECT_NE(message.find("self_attn.k_proj.weight_scale' holds 255 at [5, 2]"), std::string::npos)
        << message;
    EXPECT_NE(message.find("the NaN of e8m0"), std::string::npos) << message;
  }
}

TEST(QuantizedRefusal, RefusesScalesOfMxfp4ThatAreNotExponents) {
  const std::string message = refusal("Mxfp4", {}, [](std::vector<RawTensor>& tensors) {
    RawTensor& scale = tensor_of(tensors, "model.layers.0.mlp.down_proj.weight_scale");
    scale.type = "F16";
    scale.bytes.resize(2 * scale.bytes.size());
  });
  EXPECT_NE(message.find("down_proj.weight_scale' is F16; stored as mxfp4, groups of 32 it must be "
                         "u8"),
            std::string::npos)
      << message;
}

TEST(QuantizedRefusal, IgnoresScalesOfActivationsAndBiasesOfZeros) {
  const auto add = [](float bias) {
    return [=](std::vector<RawTensor>& tensors) {
      tensors.push_back(
          raw("model.layers.0.self_attn.k_proj.input_scale", "F32", {1}, std::vector<float>{2}));
      tensors.push_back(raw("model.layers.0.self_attn.k_scale", "F32", {1}, std::vector<float>{2}));
      tensors.push_back(
          raw("model.layers.0.self_attn.q_proj.bias", "F32", {2}, std::vector<float>{0, bias}));
    };
  };
  EXPECT_EQ(refusal("W4A16", {}, add(0)), "");
  EXPECT_NE(refusal("W4A16", {}, add(1)).find("q_proj.bias' [2] has no place"), std::string::npos);
}

TEST(QuantizedRefusal, FindsScalesThatAreNotFiniteWhenAsked) {
  const auto spoil = [](std::vector<RawTensor>& tensors) {
    // Row 3, group 1 of 4, as f16 infinity.
    std::string& scales = tensor_of(tensors, "model.layers.0.mlp.gate_proj.weight_scale").bytes;
    scales[2 * (3 * 4 + 1)] = '\x00', scales[2 * (3 * 4 + 1) + 1] = '\x7c';
  };
  EXPECT_EQ(refusal("W4A16", {}, spoil), "");
  const std::string message = refusal("W4A16", {.check_values = true}, spoil);
  EXPECT_NE(message.find("gate_proj.weight' holds"), std::string::npos) << message;
  EXPECT_NE(message.find("at [3, 32]"), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera::testing
