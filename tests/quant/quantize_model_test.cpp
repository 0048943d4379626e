// Whole checkpoints: files that hold what was made, the same bytes every time, runs that go on.
// SPDX-License-Identifier: MIT
#include "tessera/quant/quantize_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/config_fields.h"
#include "model/formats/kv_scales.h"
#include "model/formats/stored_layer.h"
#include "quant_model/fold.h"
#include "quant_model/layer.h"
#include "quant_model/output_config.h"
#include "quant_model/stored_weight.h"
#include "tests/core/message_of.h"
#include "tests/quant/small_model.h"

namespace tessera::testing {
namespace {

using quant::ActOrder;
using quant::CodeFormat;
using quant::FileFormat;
using quant::Method;
using quant::ModelQuantOptions;

ModelQuantOptions options_for(Method method, CodeFormat codes = CodeFormat::int4) {
  ModelQuantOptions options;
  options.method = method;
  options.format = {.codes = codes, .group = 32, .is_symmetric = false};
  options.samples = random_samples(6, 48, 3);
  options.quantizes_inputs = method == Method::smoothquant;
  return options;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// The values of "layer", read by the model's loader as the written configuration says.
void read_layer(const model::Checkpoint& checkpoint, const quant::StoredForm& form, bool is_sorted,
                const TensorView& to) {
  ModelQuantOptions options;
  options.gptq.order = is_sorted ? ActOrder::group : ActOrder::none;
  options.quantizes_inputs = !form.packs_int8 && form.format.codes != CodeFormat::int4;
  const auto config = nlohmann::json::parse(quant::quantized_config("{}", options, form, {}));
  if (!config.contains("quantization_config")) {
    const model::StoredTensor& stored = *checkpoint.find("layer.weight");
    stored.file->read(stored.begin, {to.as<std::byte>(), static_cast<size_t>(stored.num_bytes)});
    return;
  }
  const auto formats =
      model::StoredFormats::parse(model::Fields(config.at("quantization_config"), ""));
  const model::StoredLayer layer(checkpoint, "layer", formats->of("layer"), to.size(0), to.size(1));
  layer.read_values(0, 0, to);
}

// The values of a weight that a file holds are those of the weight, bit for bit.
TEST(StoredWeight, ComesBackFromEveryForm) {
  const int64_t n = 136, k = 256;
  const Tensor w = random_matrix(n, k, 40);
  const quant::InputStats stats = stats_of(correlated_inputs(300, k, 41));
  for (const FileFormat files : quant::kAllFileFormats) {
    for (const CodeFormat codes : quant::kAllCodeFormats) {
      const bool is_integer = codes == CodeFormat::int4 || codes == CodeFormat::int8;
      if (files == FileFormat::gptq && !is_integer) continue;
      for (const bool is_symmetric : {true, false}) {
        for (const bool is_sorted : {false, true}) {
          const quant::StoredForm form{.files = files,
                                       .format = {.codes = codes,
                                                  .group = 64,
                                                  .is_symmetric = is_symmetric,
                                                  .scale_dtype = DType::f16},
                                       .packs_int8 = is_sorted};
          const quant::Gptq gptq(stats, {.order = is_sorted ? ActOrder::group : ActOrder::none});
          const quant::QuantizedWeight made =
              is_integer ? gptq.quantize(w, form.format) : quant::quantize_rtn(w, form.format);
          const TemporaryFolder folder;
          quant::write_tensors(folder.path() / "x.safetensors",
                               quant::to_stored("layer", made, form));
          const auto checkpoint = model::Checkpoint::open_file(folder.path() / "x.safetensors");
          const Tensor want = quant::dequantize(made);
          const Tensor got(DType::f32, {n, k});
          read_layer(checkpoint, form, is_sorted, got);
          ASSERT_TRUE(got.view().same_shape(want.view()));
          for (int64_t i = 0; i < n * k; ++i) {
            ASSERT_EQ(got.view().as<float>()[i], want.view().as<float>()[i])
                << name(files) << " " << name(codes) << is_symmetric << is_sorted << " at " << i;
          }
        }
      }
    }
  }
}

TEST(QuantizeModel, TwoRunsWriteTheSameBytes) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  for (const Method method : quant::kAllMethods) {
    const CodeFormat codes = method == Method::smoothquant ? CodeFormat::int8 : CodeFormat::int4;
    const ModelQuantOptions options = options_for(method, codes);
    const auto a = to.path() / (std::string(name(method)) + "_a");
    const auto b = to.path() / (std::string(name(method)) + "_b");
    const auto report = quant::quantize_model(from.path(), a, options);
    quant::quantize_model(from.path(), b, options);
    EXPECT_EQ(files_of(a), files_of(b)) << name(method);
    EXPECT_EQ(report.layers.size(), 14u);  // 7 of each layer
    EXPECT_LT(report.bytes_after, report.bytes_before);
    for (const quant::LinearReport& one : report.layers) {
      EXPECT_GT(one.weight_error, 0.0) << one.name;
      EXPECT_LT(one.weight_error, 0.3) << one.name;
    }
  }
}

TEST(QuantizeModel, AStoppedRunGoesOn) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  struct Stop {};
  for (const Method method : quant::kAllMethods) {
    const CodeFormat codes = method == Method::smoothquant ? CodeFormat::int8 : CodeFormat::int4;
    ModelQuantOptions options = options_for(method, codes);
    if (method == Method::gptq) options.gptq.order = ActOrder::group;
    const auto whole = to.path() / (std::string(name(method)) + "_whole");
    const auto stopped = to.path() / (std::string(name(method)) + "_stopped");
    quant::quantize_model(from.path(), whole, options);
    options.on_progress = [](const quant::QuantizeProgress& now) {
      if (now.num_done == 1) throw Stop();
    };
    EXPECT_THROW(quant::quantize_model(from.path(), stopped, options), Stop);
    EXPECT_FALSE(std::filesystem::exists(stopped / "config.json"));
    options.on_progress = {};
    EXPECT_EQ(quant::quantize_model(from.path(), stopped, options).num_resumed, 1) << name(method);
    EXPECT_EQ(files_of(whole), files_of(stopped)) << name(method);
  }
}

// Files are written beside the work on the next layer; what goes wrong there is not lost.
TEST(QuantizeModel, SaysWhichFileCannotBeWritten) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  struct Stop {};
  for (const std::string file : {"model-00001-of-00003.safetensors",  // a layer
                                 "model-00002-of-00003.safetensors",  // the last one
                                 "model-00003-of-00003.safetensors"}) {
    const auto folder = to.path() / ("without_" + file);
    ModelQuantOptions options = options_for(Method::rtn);
    options.on_progress = [](const quant::QuantizeProgress&) { throw Stop(); };
    EXPECT_THROW(quant::quantize_model(from.path(), folder, options), Stop);
    options.on_progress = {};
    std::filesystem::remove(folder / file);
    std::filesystem::create_directories(folder / file / "in_the_way");
    const std::string message =
        message_of([&] { quant::quantize_model(from.path(), folder, options); });
    EXPECT_TRUE(contains(message, file + ".part cannot be renamed")) << message;
    EXPECT_FALSE(std::filesystem::exists(folder / "config.json"));
    std::filesystem::remove_all(folder / file);
    quant::quantize_model(from.path(), folder, options);
    EXPECT_TRUE(std::filesystem::exists(folder / "config.json"));
  }
}

TEST(QuantizeModel, KeepsWhatItIsTold) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  ModelQuantOptions options = options_for(Method::rtn);
  options.keep = {"layers.0.", "o_proj"};
  const auto report = quant::quantize_model(from.path(), to.path() / "out", options);
  EXPECT_EQ(report.layers.size(), 6u);
  const auto before = model::Checkpoint::open(from.path());
  const auto after = model::Checkpoint::open(to.path() / "out");
  for (const std::string name : {"model.layers.0.mlp.up_proj.weight",
                                 "model.layers.1.self_attn.o_proj.weight", "model.norm.weight"}) {
    ASSERT_NE(after.find(name), nullptr) << name;
    EXPECT_EQ(after.find(name)->type, "BF16");
    EXPECT_EQ(after.find(name)->shape, before.find(name)->shape);
  }
  const auto config = nlohmann::json::parse(files_of(to.path() / "out").at("config.json"));
  const auto& ignored = config.at("quantization_config").at("ignore");
  EXPECT_NE(std::find(ignored.begin(), ignored.end(), "model.layers.1.self_attn.o_proj"),
            ignored.end());
  EXPECT_EQ(files_of(to.path() / "out").at("tokenizer.json"), "{}");
}

// Values that stand for the codes, in a checkpoint that any engine reads, predict the same as the
// codes; and 8 bits predict nearly as the original does.
TEST(QuantizeModel, TheResultPredictsAsTheOriginal) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  const auto windows = random_samples(3, 64, 9);
  const double before = quant::measure_likelihood(from.path(), windows).nll;
  ModelQuantOptions options = options_for(Method::rtn, CodeFormat::int8);
  quant::quantize_model(from.path(), to.path() / "codes", options);
  const double codes = quant::measure_likelihood(to.path() / "codes", windows).nll;
  EXPECT_NE(codes, before);
  EXPECT_NEAR(codes, before, 0.02);
  options.files = FileFormat::dense;
  quant::quantize_model(from.path(), to.path() / "dense", options);
  EXPECT_EQ(quant::measure_likelihood(to.path() / "dense", windows).nll, codes);
  options = options_for(Method::rtn, CodeFormat::int8);
  options.quantizes_inputs = true;
  quant::quantize_model(from.path(), to.path() / "inputs", options);
  const double inputs = quant::measure_likelihood(to.path() / "inputs", windows).nll;
  EXPECT_NE(inputs, codes);
  EXPECT_NEAR(inputs, before, 0.05);
}

// One scale for all inputs of a layer, from calibration, predicts nearly as a scale for each token.
TEST(QuantizeModel, StaticInputsPredictAsDynamicOnes) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  const auto windows = random_samples(3, 64, 9);
  for (const CodeFormat codes : {CodeFormat::int8, CodeFormat::fp8}) {
    ModelQuantOptions options = options_for(Method::smoothquant, codes);
    const std::filesystem::path folder = to.path() / std::string(name(codes));
    quant::quantize_model(from.path(), folder / "dynamic", options);
    options.has_static_inputs = true;
    quant::quantize_model(from.path(), folder / "static", options);
    const auto checkpoint = model::Checkpoint::open(folder / "static");
    const auto scale =
        model::read_number(checkpoint, "model.layers.1.mlp.down_proj.input_scale").value_or(-1);
    EXPECT_GT(scale, 0.0f);
    const double dynamic = quant::measure_likelihood(folder / "dynamic", windows).nll;
    const double fixed = quant::measure_likelihood(folder / "static", windows).nll;
    EXPECT_NE(fixed, dynamic);
    EXPECT_NEAR(fixed, dynamic, 0.05);
  }
}

// The largest key and value of the samples become the largest code of e4m3, and a loaded model has
// the scales.
TEST(QuantizeModel, CalibratesScalesOfKeysAndValues) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  ModelQuantOptions options = options_for(Method::rtn, CodeFormat::int8);
  options.calibrates_kv = true;
  quant::quantize_model(from.path(), to.path() / "out", options);
  const auto checkpoint = model::Checkpoint::open(to.path() / "out");
  const auto config = model::load_config(to.path() / "out");
  const auto loaded = model::load_model(checkpoint, config, {.dtype = DType::f32});
  ASSERT_EQ(loaded->kv_scales().size(), 2u);
  for (const model::KvScale& scale : loaded->kv_scales()) {
    EXPECT_GT(scale.k * 448, 0.5f);
    EXPECT_LT(scale.k * 448, 50.0f);
    EXPECT_NE(scale.k, scale.v);
  }
  EXPECT_TRUE(
      model::load_model(model::Checkpoint::open(from.path()), model::load_config(from.path()), {})
          ->kv_scales()
          .empty());
}

// Scales that are folded into norms and linear layers leave the function of the layer as it is.
TEST(Fold, DoesNotChangeTheLayer) {
  for (const auto& [family, more] :
       {std::pair{"llama", ""}, std::pair{"qwen2", ""}, std::pair{"phi3", ""},
        std::pair{"gemma2", R"(, "sliding_window": 16, "query_pre_attn_scalar": 32)"}}) {
    const TemporaryFolder folder;
    write_small_model(folder, family, more);
    const model::ModelConfig config = model::load_config(folder.path());
    const auto checkpoint = model::Checkpoint::open(folder.path());
    const auto dry = model::make_dry_model(config, {.dtype = DType::f32});
    const auto source = model::make_stored_source(checkpoint, config, dry->weights().specs());
    quant::LayerTensors tensors(*source, dry->weights().specs(), "model.layers.1.");
    const auto run = [&] {
      quant::LayerRunner runner(config, 1, 40);
      const Tensor x = random_matrix(40, config.hidden, 50);
      std::copy_n(x.view().as<float>(), 40 * config.hidden, runner.stream(0).as<float>());
      runner.advance(tensors, 1);
      return std::vector<float>(runner.stream(0).as<float>(),
                                runner.stream(0).as<float>() + 40 * config.hidden);
    };
    const std::vector<float> before = run();
    const std::vector<quant::Linear> linears = quant::find_linears(config);
    std::mt19937 random(51);
    for (const quant::Fold& fold : quant::find_folds(config)) {
      const auto linear = std::ranges::find(linears, fold.linear, &quant::Linear::name);
      ASSERT_NE(linear, linears.end()) << fold.linear;
      std::vector<float> scales(static_cast<size_t>(tensors.at(linear->tensors[0]).size(1)));
      std::vector<float> by_owner(scales.size());
      for (float& scale : by_owner) scale = std::exp(normal(random));
      for (size_t i = 0; i < scales.size(); ++i) {
        scales[i] = by_owner[fold.owners.empty() ? i : static_cast<size_t>(fold.owners[i])];
      }
      quant::fold_scales(fold, *linear, DType::bf16, scales, tensors);
    }
    const std::vector<float> after = run();
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_NEAR(after[i], before[i], 2e-4 * (1 + std::fabs(before[i]))) << family << " at " << i;
    }
  }
}

TEST(QuantizeModel, RefusesByName) {
  const TemporaryFolder from, to;
  write_small_model(from, "llama");
  const auto refusal = [&](const ModelQuantOptions& options, std::string_view folder = "new") {
    return message_of([&] { quant::quantize_model(from.path(), to.path() / folder, options); });
  };
  EXPECT_TRUE(contains(refusal(options_for(Method::awq, CodeFormat::int8)), "awq makes int4"));
  EXPECT_TRUE(contains(refusal(options_for(Method::gptq, CodeFormat::fp8)), "use rtn"));
  ModelQuantOptions options = options_for(Method::gptq);
  options.samples.clear();
  EXPECT_TRUE(contains(refusal(options), "calibration samples"));
  options = options_for(Method::rtn);
  options.format.group = 64;
  EXPECT_TRUE(contains(refusal(options), "down_proj"));
  to.write("other/notes.txt", "mine");
  EXPECT_TRUE(contains(refusal(options_for(Method::rtn), "other"), "is not empty"));
  quant::quantize_model(from.path(), to.path() / "run", options_for(Method::rtn));
  EXPECT_TRUE(contains(refusal(options_for(Method::gptq), "run"), "other options"));
  options = options_for(Method::gptq);
  options.calibrates_kv = true;
  options.files = FileFormat::gptq;
  EXPECT_TRUE(contains(refusal(options), "keys and values"));
  options = options_for(Method::rtn, CodeFormat::int8);
  options.has_static_inputs = true;
  EXPECT_TRUE(contains(refusal(options), "static scales"));
  options = options_for(Method::gptq);
  options.samples[2][5] = 128;
  EXPECT_TRUE(contains(refusal(options, "tokens"), "token 128"));
  const TemporaryFolder olmo;
  write_small_model(olmo, "olmo2");
  EXPECT_TRUE(contains(message_of([&] {
                         quant::quantize_model(olmo.path(), to.path() / "olmo",
                                               options_for(Method::awq));
                       }),
                       "olmo2"));
}

TEST(QuantizeModel, TakesEveryFamily) {
  for (const auto& [family, more] :
       {std::pair{"mistral", ""}, std::pair{"qwen2", ""}, std::pair{"qwen3", ""},
        std::pair{"phi3", ""}, std::pair{"olmo2", ""},
        std::pair{"gemma2", R"(, "sliding_window": 16, "query_pre_attn_scalar": 32)"}}) {
    const TemporaryFolder from, to;
    write_small_model(from, family, more);
    const auto report =
        quant::quantize_model(from.path(), to.path() / "out", options_for(Method::gptq));
    EXPECT_EQ(report.layers.size(), std::string_view(family) == "phi3" ? 8u : 14u) << family;
    const auto windows = random_samples(1, 32, 9);
    EXPECT_TRUE(std::isfinite(quant::measure_likelihood(to.path() / "out", windows).nll));
  }
}

}  // namespace
}  // namespace tessera::testing
