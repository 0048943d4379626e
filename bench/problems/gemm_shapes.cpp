// The matrix product's shapes: small and awkward ones for tests, those of Llama 3 8B for benches.
// SPDX-License-Identifier: MIT
#include "bench/problems/gemm_shapes.h"

#include <initializer_list>

#include "bench/problems/builder.h"
#include "tessera/ops/activation.h"

namespace tessera::bench {
namespace {

constexpr int64_t option_of(Activation kind) { return 1 + static_cast<int64_t>(kind); }
constexpr int64_t kRelu = option_of(Activation::relu);
constexpr int64_t kSilu = option_of(Activation::silu);
constexpr int64_t kGelu = option_of(Activation::gelu);
constexpr int64_t kGeluTanh = option_of(Activation::gelu_tanh);

Shape shape_of(int64_t m, int64_t n, int64_t k,
               std::initializer_list<std::pair<std::string, int64_t>> options = {}) {
  Shape shape{{"m", m}, {"n", n}, {"k", k}};
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

void append(std::vector<Shape>& all, const std::vector<Shape>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Empty, one of everything, whole tiles, partial tiles; k a multiple of a step or not.
std::vector<Shape> plain_shapes() {
  return {shape_of(0, 64, 64),     shape_of(3, 0, 16),      shape_of(4, 24, 0),
          shape_of(1, 1, 1),       shape_of(1, 8, 8),       shape_of(2, 16, 24),
          shape_of(1, 512, 1024),  shape_of(7, 40, 72),     shape_of(8, 72, 128),
          shape_of(8, 320, 1000),  shape_of(9, 48, 200),    shape_of(16, 64, 256),
          shape_of(17, 256, 512),  shape_of(33, 264, 64),   shape_of(64, 320, 1024),
          shape_of(65, 512, 1000), shape_of(100, 127, 33),  shape_of(128, 256, 64),
          shape_of(129, 100, 7),   shape_of(256, 320, 512), shape_of(300, 512, 1024),
          shape_of(33, 100, 1000), shape_of(2, 127, 1),     shape_of(200, 1040, 136),
          shape_of(385, 5288, 64)};  // clusters on Hopper, ragged at both ends
}

// Gaps between rows of whole vectors and of odd sizes; bases that vector loads cannot take.
std::vector<Shape> strided_shapes() {
  return {shape_of(9, 64, 64, {{"gap", 8}, {"gap_out", 8}}),
          shape_of(150, 264, 128, {{"gap", 64}, {"gap_out", 16}}),
          shape_of(33, 64, 128, {{"gap", 8}, {"offset", 8}}),
          shape_of(17, 72, 128, {{"gap", 3}}),
          shape_of(17, 72, 128, {{"gap_out", 1}}),
          shape_of(130, 72, 128, {{"gap_out", 1}}),
          shape_of(65, 100, 64, {{"offset", 1}}),
          shape_of(300, 264, 200, {{"gap", 1}, {"gap_out", 3}, {"offset", 1}}),
          shape_of(17, 64, 64, {{"gap_out", 3}, {"residual", 1}, {"bias", 1}, {"offset", 1}})};
}

std::vector<Shape> batched_shapes() {
  return {shape_of(5, 24, 16, {{"batch", 0}}),
          shape_of(16, 64, 64, {{"batch", 1}}),
          shape_of(17, 72, 64, {{"batch", 3}}),
          shape_of(64, 64, 128, {{"batch", 3}, {"shared_b", 1}}),
          shape_of(5, 48, 33, {{"batch", 3}, {"gap", 1}, {"gap_out", 1}}),
          shape_of(1, 128, 256, {{"batch", 3}, {"bias", 1}}),
          shape_of(130, 256, 128, {{"batch", 3}, {"gap", 8}, {"gap_out", 8}, {"residual", 1}}),
          shape_of(9, 64, 72, {{"batch", 3}, {"activation", kSilu}, {"gated", 1}})};
}

// Every part of the epilogue alone, then the combinations that serving uses.
std::vector<Shape> epilogue_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t m : {4, 150}) {
    append(shapes, {shape_of(m, 256, 128, {{"bias", 1}}), shape_of(m, 256, 128, {{"residual", 1}}),
                    shape_of(m, 264, 64, {{"residual", 2}}),
                    shape_of(m, 256, 64, {{"bias", 1}, {"activation", kGelu}}),
                    shape_of(m, 512, 128, {{"activation", kSilu}, {"gated", 1}}),
                    shape_of(m, 288, 72, {{"activation", kRelu}, {"gated", 1}})});
    for (const int64_t kind : {kRelu, kSilu, kGelu, kGeluTanh}) {
      shapes.push_back(shape_of(m, 72, 128, {{"activation", kind}}));
      shapes.push_back(shape_of(m, 144, 64, {{"activation", kind}, {"gated", 1}, {"bias", 1}}));
    }
  }
  append(shapes, {shape_of(7, 24, 0, {{"bias", 1}, {"residual", 1}, {"activation", kRelu}}),
                  shape_of(100, 100, 33, {{"bias", 1}, {"residual", 1}, {"activation", kGeluTanh}}),
                  shape_of(1, 32, 64, {{"activation", kSilu}, {"gated", 1}, {"residual", 2}}),
                  shape_of(65, 48, 72, {{"activation", kGelu}, {"gated", 1}, {"residual", 1}}),
                  shape_of(33, 112, 33, {{"activation", kRelu}, {"gated", 1}, {"gap_out", 1}}),
                  shape_of(385, 5288, 64, {{"bias", 1}, {"residual", 1}, {"static_b", 1}}),
                  shape_of(385, 5296, 64, {{"activation", kSilu}, {"gated", 1}}),
                  shape_of(8, 512, 1024, {{"residual", 2}, {"static_b", 1}}),
                  shape_of(16, 256, 512, {{"activation", kSilu}, {"gated", 1}, {"static_b", 1}})});
  return shapes;
}

// Problems with a NaN or an infinity in a. It must appear in the same row of out, or as the code
// that the output type has for it.
std::vector<Shape> special_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t special : kSpecials) {
    shapes.push_back(shape_of(4, 256, 128, {{"special", special}}));
    shapes.push_back(shape_of(150, 256, 128, {{"special", special}}));
  }
  return shapes;
}

// Long k and few tiles: where Hopper splits k.
std::vector<Shape> split_shapes() {
  return {shape_of(128, 320, 2048),
          shape_of(100, 264, 2112, {{"bias", 1}, {"residual", 1}, {"static_b", 1}}),
          shape_of(129, 96, 4096, {{"gap", 8}, {"gap_out", 3}}),
          shape_of(256, 512, 4096, {{"activation", kSilu}, {"gated", 1}}),
          shape_of(72, 512, 2048, {{"batch", 3}, {"shared_b", 1}}),
          shape_of(385, 1160, 2048, {{"static_b", 1}}),
          shape_of(385, 1744, 3072, {{"activation", kSilu}, {"gated", 1}, {"residual", 1}})};
}

std::vector<Shape> tf32_shapes() {
  return {shape_of(0, 64, 64, {{"tf32", 1}}),
          shape_of(1, 256, 512, {{"tf32", 1}}),
          shape_of(17, 72, 64, {{"tf32", 1}}),
          shape_of(64, 320, 1000, {{"tf32", 1}}),
          shape_of(100, 127, 33, {{"tf32", 1}}),
          shape_of(129, 264, 128, {{"tf32", 1}, {"bias", 1}}),
          shape_of(300, 512, 1024, {{"tf32", 1}}),
          shape_of(65, 128, 64, {{"tf32", 1}, {"gap", 4}, {"gap_out", 4}}),
          shape_of(33, 96, 72, {{"tf32", 1}, {"activation", kSilu}, {"gated", 1}}),
          shape_of(40, 96, 72, {{"tf32", 1}, {"activation", kGelu}, {"residual", 1}}),
          shape_of(20, 64, 64, {{"tf32", 1}, {"batch", 3}})};
}

std::vector<Shape> squares(std::initializer_list<int64_t> sizes) {
  std::vector<Shape> shapes;
  for (const int64_t size : sizes) shapes.push_back(shape_of(size, size, size));
  return shapes;
}

// qkv, o, gate and up, up, down, lm_head.
std::vector<Shape> llama8b_shapes() {
  struct Layer {
    int64_t n, k;
  };
  std::vector<Shape> shapes;
  for (const auto& [n, k] : {Layer{6144, 4096}, Layer{4096, 4096}, Layer{28672, 4096},
                             Layer{14336, 4096}, Layer{4096, 14336}, Layer{128256, 4096}}) {
    for (const int64_t m :
         {1, 2, 4, 8, 16, 17, 24, 32, 33, 48, 64, 96, 128, 256, 512, 1024, 4096}) {
      shapes.push_back(shape_of(m, n, k, {{"static_b", 1}}));
    }
  }
  return shapes;
}

std::vector<Shape> fused_shapes() {
  std::vector<Shape> shapes = {
      shape_of(128, 16384, 4096, {{"activation", kGelu}, {"static_b", 1}}),
      shape_of(128, 4096, 4096, {{"activation", kGelu}, {"static_b", 1}}),
      shape_of(128, 11008, 4096, {{"activation", kSilu}, {"static_b", 1}})};
  for (const int64_t m : {16, 4096}) {
    shapes.push_back(
        shape_of(m, 28672, 4096, {{"activation", kSilu}, {"gated", 1}, {"static_b", 1}}));
    shapes.push_back(shape_of(m, 4096, 14336, {{"residual", 1}, {"static_b", 1}}));
  }
  return shapes;
}

std::vector<Shape> f32_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t size : {2048, 4096}) {
    for (const int64_t tf32 : {0, 1}) {
      shapes.push_back(shape_of(size, size, size, {{"tf32", tf32}}));
    }
  }
  return shapes;
}

}  // namespace

std::vector<Shape> gemm_test_shapes() {
  std::vector<Shape> shapes = plain_shapes();
  append(shapes, strided_shapes());
  append(shapes, batched_shapes());
  append(shapes, epilogue_shapes());
  append(shapes, special_shapes());
  append(shapes, split_shapes());
  append(shapes, tf32_shapes());
  return shapes;
}

std::vector<Workload> gemm_workloads() {
  return {{"gemm/square", squares({4096, 8192, 16384})},
          {"gemm/types", squares({2048})},
          {"gemm/f32", f32_shapes()},
          {"linear/llama8b", llama8b_shapes()},
          {"ffn/fused", fused_shapes()}};
}

}  // namespace tessera::bench
