// The calls of a forward pass as questions. The views have a model's shapes, and addresses that
// nothing reads.
// SPDX-License-Identifier: MIT
#include "model/device_support.h"

#include "core/text.h"
#include "model/kv_layout.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/rope.h"

namespace tessera::model {
namespace {

constexpr int64_t kTokens = 16;
constexpr int64_t kPages = 4;

class Questions {
 public:
  Questions(const ModelConfig& config, const ModelTypes& types, Device device)
      : config_(config), types_(types), device_(device) {}

  std::string first_missing() {
    ask_layers();
    ask_cache();
    ask_attention();
    return missing_;
  }

 private:
  // A view at an address of its own, as a GPU's allocator would align it.
  TensorView make(DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView view =
        TensorView::contiguous(reinterpret_cast<void*>(next_), dtype, shape, device_);
    next_ += (static_cast<uintptr_t>(storage_bytes(dtype, view.num_elements())) | 255) + 1;
    return view;
  }
  TensorView rows(int64_t width) { return make(types_.dtype, {kTokens, width}); }
  TensorView heads(int64_t count) { return make(types_.dtype, {kTokens, count, config_.head_dim}); }
  TensorView ints(int64_t count) { return make(DType::i32, {count}); }

  // Of the first that is missing the name is kept.
  template <class Args>
  void ask(std::string_view op, const Args& args, const std::string& what) {
    if (missing_.empty() && !supports(args, ctx_)) {
      missing_ = concat(op, " of ", name(types_.dtype), what);
    }
  }

  void ask_linear(int64_t out, int64_t in, DType out_type, bool has_bias) {
    const bool is_coded = types_.weights == WeightFormat::int8;
    GemmArgs args{.a = rows(in),
                  .b = make(is_coded ? DType::i8 : types_.dtype, {out, in}),
                  .out = make(out_type, {kTokens, out}),
                  .is_b_static = true};
    if (is_coded) args.b_scale = make(DType::f32, {out});
    if (has_bias) args.bias = make(types_.dtype, {out});
    ask("gemm", args,
        concat(" by ", name(args.b.dtype), "[", out, ", ", in, "] to ", name(out_type)));
  }

  void ask_layers() {
    const DType dtype = types_.dtype;
    const int64_t hidden = config_.hidden, inter = config_.inter;
    const int64_t q_width = config_.num_heads * config_.head_dim;
    const int64_t kv_width = config_.num_kv_heads * config_.head_dim;
    ask("embedding",
        EmbeddingArgs{.table = make(dtype, {config_.vocab, hidden}),
                      .ids = ints(kTokens),
                      .out = rows(hidden)},
        "");
    const TensorView normed = rows(hidden);
    ask("rms_norm",
        RmsNormArgs{
            .x = normed, .weight = make(dtype, {hidden}), .out = normed, .residual = rows(hidden)},
        "");
    ask_linear(q_width + 2 * kv_width, hidden, dtype, config_.has_qkv_bias);
    ask_linear(hidden, q_width, dtype, config_.has_output_bias);
    ask_linear(2 * inter, hidden, dtype, config_.has_mlp_bias);
    ask_linear(hidden, inter, dtype, config_.has_mlp_bias);
    ask_linear(config_.vocab, hidden, DType::f32, false);
    const TensorView gate_up = rows(2 * inter), gate = gate_up.slice(1, 0, inter);
    ask("activation",
        ActivationArgs{.x = gate,
                       .up = gate_up.slice(1, inter, 2 * inter),
                       .out = gate,
                       .kind = config_.activation},
        "");
    ask("rope",
        RopeArgs{.q = heads(config_.num_heads),
                 .k = heads(config_.num_kv_heads),
                 .positions = ints(kTokens),
                 .table = make(DType::f32, {config_.max_positions, config_.head_dim})},
        "");
  }

  // One layer's views, for a batch of kTokens sequences.
  PagedKv paged_kv() {
    const KvLayout layout(config_, config_.num_kv_heads,
                          {.num_pages = kPages,
                           .page_size = types_.page_size,
                           .dtype = types_.dtype,
                           .type = types_.kv_type,
                           .num_tails = 1});
    PagedKv kv = layout.views(make(DType::u8, {layout.layer_bytes()}));
    kv.page_table = make(DType::i32, {kTokens, kPages});
    kv.seq_lens = ints(kTokens);
    if (!has_tails(types_.kv_type)) return kv;
    kv.k_tail = make(types_.dtype, {1, kKvGroup, config_.num_kv_heads, config_.head_dim});
    kv.tails = ints(kTokens);
    return kv;
  }

  void ask_cache() {
    const PagedKv kv = paged_kv();
    const TensorView k = heads(config_.num_kv_heads), v = heads(config_.num_kv_heads);
    const std::string cache = concat(", ", name(types_.kv_type), " cache");
    KvAppendArgs append{.k = k,
                        .v = v,
                        .slots = ints(kTokens),
                        .k_pages = kv.k_pages,
                        .v_pages = kv.v_pages,
                        .k_scales = kv.k_scales,
                        .v_scales = kv.v_scales,
                        .k_tail = kv.k_tail};
    if (has_tails(types_.kv_type)) append.tail_slots = ints(kTokens);
    ask("kv_append", append, cache);
    ask("kv_copy_pages",
        KvCopyPagesArgs{.k_pages = kv.k_pages,
                        .v_pages = kv.v_pages,
                        .sources = ints(1),
                        .targets = ints(1),
                        .k_scales = kv.k_scales,
                        .v_scales = kv.v_scales},
        cache);
    if (types_.kv_type == KvFormat::plain) return;
    ask("kv_gather", KvGatherArgs{.kv = kv, .starts = ints(kTokens), .k = k, .v = v}, cache);
  }

  void ask_attention() {
    const TensorView q = heads(config_.num_heads), out = heads(config_.num_heads);
    const std::string what = concat(" heads of ", config_.head_dim, ", ", name(types_.kv_type),
                                    " cache in pages of ", types_.page_size);
    ask("attention_decode",
        DecodeAttentionArgs{.q = q, .kv = paged_kv(), .out = out, .window = config_.window}, what);
    // Over the cache itself, or over what is read back of it.
    const int64_t page_size = types_.kv_type == KvFormat::plain ? types_.page_size : kKvGroup;
    const auto pages = [&] {
      return make(types_.dtype, {kPages, page_size, config_.num_kv_heads, config_.head_dim});
    };
    ask("attention_prefill",
        AttentionArgs{.q = q,
                      .k = pages(),
                      .v = pages(),
                      .out = out,
                      .mask = {.left = config_.window > 0 ? config_.window - 1 : -1, .right = 0},
                      .q_starts = ints(2),
                      .kv_lens = ints(1),
                      .k_page_table = make(DType::i32, {1, kPages})},
        what);
  }

  const ModelConfig& config_;
  const ModelTypes& types_;
  Device device_;
  Context ctx_{.batch_invariant = true};
  uintptr_t next_ = 1 << 20;
  std::string missing_;
};

}  // namespace

std::string find_missing_operation(const ModelConfig& config, const ModelTypes& types,
                                   Device device) {
  return Questions(config, types, device).first_missing();
}

}  // namespace tessera::model
