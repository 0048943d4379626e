"""Every operation of the C ABI, described once.

tools/generate_bindings.py writes from it the C headers (include/tessera/c_types.h, c_ops.h and
c_attention.h), the C++ behind them (src/c_api/ops.cpp and attention.cpp) and the tables of the
Python package (python/tessera/_operations.py), from which its PyTorch schemas follow. Fields are
in the order of C, which is frozen: add to the end of a struct, and to the end of this list.
"""
# SPDX-License-Identifier: MIT

from describe import (Enum, Field, Operation, Struct, choice, count, format_of, inout, number,
                      optional, optional_inout, optional_out, out, reserved, switch, tensor)

STATUS = Enum(
    "TesseraStatus", "TESSERA_", {"ok": 0, "error": 1, "out_of_memory": 2, "internal_error": 3,
                                  "not_supported": 4},
    python="STATUS",
    notes={"error": "refused or failed: the message shows the values and the remedy",
           "out_of_memory": "of the host, or of a GPU",
           "internal_error": "an exception that is not Tessera's own",
           "not_supported": 'the answer "no" to a call with TesseraContext.check_only'})
DTYPE = Enum(
    "TesseraDType", "TESSERA_", {"dtype_auto": 0, "f32": 1, "f16": 2, "bf16": 3, "e4m3": 4,
                                 "e5m2": 5, "i8": 6, "u8": 7, "i4": 8, "i32": 9, "i64": 10},
    python="DTYPES", notes={"dtype_auto": "the tensor's own"})
ACTIVATION = Enum(
    "TesseraActivation", "TESSERA_", {"relu": 0, "silu": 1, "gelu": 2, "gelu_tanh": 3},
    python="ACTIVATIONS", cpp="Activation", none="NO_ACTIVATION",
    notes={None: "for tessera_gemm only: the product as it is"})
REDUCTION = Enum(
    "TesseraReduction", "TESSERA_", {"sum": 0, "mean": 1, "max": 2, "min": 3, "absmax": 4},
    python="REDUCTIONS", cpp="Reduction")
ROPE_STYLE = Enum(
    "TesseraRopeStyle", "TESSERA_ROPE_", {"half_split": 0, "interleaved": 1},
    python="ROPE_STYLES", cpp="RopeStyle")
ROPE_SCALING = Enum(
    "TesseraRopeScalingKind", "TESSERA_ROPE_SCALING_",
    {"none": 0, "linear": 1, "llama3": 2, "yarn": 3},
    python="ROPE_SCALINGS", cpp="RopeScalingKind")
SCALE_MODE = Enum(
    "TesseraScaleMode", "TESSERA_SCALE_", {"dynamic": 0, "fixed": 1},
    python="SCALE_MODES", cpp="ScaleMode",
    notes={"dynamic": "scale and zero_point are computed and written",
           "fixed": "scale and zero_point are read"})
GEMM_FLAGS = Enum(
    "TesseraGemmFlags", "TESSERA_GEMM_", {"gated": 1, "allow_tf32": 2, "static_b": 4},
    python="GEMM_FLAGS", doc="Bits of the flags of tessera_gemm, named after fields of GemmArgs.",
    notes={"gated": "is_gated", "allow_tf32": "allow_tf32", "static_b": "b.is_static"})
PACKING = Enum(
    "TesseraPacking", "TESSERA_PACKING_", {"rows": 0, "fragments": 1},
    python="PACKINGS", cpp="Packing", doc="tessera/ops/weight.h: how the codes of a weight lie.")
ATTENTION_BOUNDS = Enum(
    "TesseraAttentionBounds", "TESSERA_ATTENTION_", {"left": 1, "right": 2},
    python="ATTENTION_BOUNDS", doc="Which of the two bounds of TesseraAttentionArgs hold.",
    notes={"right": "causal if right is 0"})
ENUMS = [STATUS, DTYPE, ACTIVATION, REDUCTION, ROPE_STYLE, ROPE_SCALING, SCALE_MODE, GEMM_FLAGS,
         ATTENTION_BOUNDS, PACKING]

STRUCTS = [
    Struct(
        "TesseraContext", "Context", (
            ("uint64_t", "struct_size", ""),
            ("void*", "stream", "a cudaStream_t; NULL is the default stream; ignored on the CPU"),
            ("const char*", "row", "run exactly this row (see tessera_row_info); NULL: choose"),
            ("int32_t", "batch_invariant",
             "1: only rows whose result does not depend on the rest of the batch"),
            ("int32_t", "check_only",
             "1: run nothing; TESSERA_OK if the call would be served,\n"
             "TESSERA_NOT_SUPPORTED if it would be refused")),
        doc="What a call needs beside its tensors. NULL in its place means the defaults, which are "
            "zeros. The caller sets struct_size = sizeof(TesseraContext), so that fields can be "
            "added at the end."),
    Struct(
        "TesseraRopeScaling", "RopeScaling", (
            ("uint64_t", "struct_size", ""),
            ("int32_t", "kind", "TesseraRopeScalingKind"),
            ("double", "factor", ""),
            ("double", "low_freq_factor", ""),
            ("double", "high_freq_factor", ""),
            ("int64_t", "original_max_positions", ""),
            ("double", "beta_fast", ""),
            ("double", "beta_slow", ""),
            ("double", "attention_factor", "0: 0.1 ln(factor) + 1")),
        doc="Names as in a model's config.json; kind says which of them are read."),
    Struct(
        "TesseraDeviceInfo", "CDeviceInfo", (
            ("uint64_t", "struct_size", "set by the caller"),
            ("char[128]", "name", "cut to fit"),
            ("int32_t", "compute_capability", "10 * major + minor"),
            ("int32_t", "num_sms", ""),
            ("int64_t", "memory_bytes", ""),
            ("int64_t", "l2_bytes", ""),
            ("int64_t", "shared_bytes_per_block", ""),
            ("int32_t", "sm_clock_khz", "")),
        doc="What tessera_device_info says of a GPU."),
    Struct(
        "TesseraRowInfo", "CRowInfo", (
            ("uint64_t", "struct_size", "set by the caller"),
            ("const char*", "family", '"elementwise"; the strings live as long as the library'),
            ("const char*", "op", '"rms_norm"'),
            ("const char*", "name", '"rms_norm_sm90_bf16_e4m3"'),
            ("const char*", "library", '"portable" or "sm90"'),
            ("TesseraDType", "in", ""),
            ("TesseraDType", "out", ""),
            ("int32_t", "is_batch_invariant", "")),
        doc="What tessera_row_info says of a compiled kernel."),
]

OPS = [
    Operation(
        "rms_norm", "RmsNormArgs", "norm.h", (
            tensor("x"), tensor("weight"), out(format="out_format"), optional_inout("residual"),
            optional("static_scale"), optional_out("token_scale"),
            number("eps"), format_of("out_format", "of out"))),
    Operation(
        "layer_norm", "LayerNormArgs", "norm.h", (
            tensor("x"), tensor("weight"), optional("bias"), out(format="out_format"),
            optional_inout("residual"), optional("static_scale"), optional_out("token_scale"),
            number("eps"), format_of("out_format", "of out"))),
    Operation(
        "rope", "RopeArgs", "rope.h", (
            inout("q"), optional_inout("k"), tensor("positions"), tensor("table"),
            choice("style", ROPE_STYLE)),
        doc="q and k are rotated in place."),
    Operation(
        "activation", "ActivationArgs", "activation.h", (
            tensor("x"), optional("up"), out(), choice("kind", ACTIVATION)),
        doc="out = f(x) * up, or f(x) where up is NULL."),
    Operation(
        "softmax", "SoftmaxArgs", "softmax.h", (
            tensor("x"), optional("mask"), out(), number("scale")),
        doc="A mask of bool counts as uint8."),
    Operation("embedding", "EmbeddingArgs", "embedding.h",
              (tensor("table"), tensor("ids"), out())),
    Operation("copy", "CopyArgs", "copy.h", (tensor("x"), out()), doc="x and out of any strides."),
    Operation(
        "quantize", "QuantizeArgs", "quantize.h", (
            tensor("x"), out(format="out_format"),
            inout("scale", "written if mode is dynamic, else read"),
            optional_inout("zero_point", "like scale"),
            choice("mode", SCALE_MODE), format_of("out_format", "of out")),
        doc="The shape of scale says which elements share one."),
    Operation(
        "dequantize", "DequantizeArgs", "quantize.h", (
            tensor("x", format="x_format"), tensor("scale"), optional("zero_point"), out(),
            format_of("x_format", "of x"))),
    Operation("reduce", "ReduceArgs", "reduce.h",
              (tensor("x"), out(), choice("kind", REDUCTION)), doc="Over the last axis."),
    Operation("argmax", "ArgmaxArgs", "reduce.h", (tensor("x"), out()), doc="Over the last axis."),
    Operation(
        "gemm", "GemmArgs", "gemm.h", (
            tensor("a"), tensor("b", to="b.values"),
            out(note="may be residual", format="out_format"), optional("bias"),
            optional("residual"), optional("b_scale", to="b.scale"), optional("out_scale"),
            choice("activation", ACTIVATION, "TesseraActivation or TESSERA_NO_ACTIVATION",
                   may_be_none=True),
            Field("flags", "bits", "of TesseraGemmFlags", enum=GEMM_FLAGS,
                  members={"gated": "is_gated", "allow_tf32": "allow_tf32",
                           "static_b": "b.is_static"}),
            format_of("out_format", "of out")),
        doc="out = a . b^T, and what the other arguments fuse behind it."),
    Operation("pack_gate_up", "PackGateUpArgs", "gemm.h", (
        tensor("gate", to="gate.values"), tensor("up", to="up.values"), out(to="out.values")),
              is_step=True),
    Operation("prune_2_4", "Prune24Args", "sparse.h",
              (tensor("w"), out("out_values"), out("out_meta")), doc="On the CPU.", is_step=True),
    Operation("expand_2_4", "Expand24Args", "sparse.h", (tensor("values"), tensor("meta"), out()),
              doc="The inverse of prune_2_4; on the CPU.", is_step=True),
    Operation("gemm_2_4", "Gemm24Args", "sparse.h",
              (tensor("a"), tensor("values"), tensor("meta"), out()), doc="On any device."),
    Operation(
        "scale", "ScaleArgs", "scale.h", (
            tensor("x"), out(note="may be x or residual"), optional("residual"),
            number("scale"), number("softcap", "0: none")),
        doc="out = scale * x, softly capped, plus residual."),
]



def weight_tensors(member, prefix="", make=tensor, make_optional=optional):
    """The tensors of a quantised weight, which `member` leads to in C++."""
    return (make(prefix + "values", to=member + ".values", format="format"),
            make_optional(prefix + "scale", to=member + ".scale"),
            make_optional(prefix + "zero_point", to=member + ".zero_point"))


WEIGHT_OPS = [
    Operation("embedding_computed", "EmbeddingArgs", "embedding.h",
              (tensor("table"), tensor("ids"), out(), optional("computed")), cpp="embedding",
              doc="With computed, the id -1 - i stands for computed[i]."),
    Operation(
        "gemm_weight", "GemmArgs", "gemm.h", (
            tensor("a"), tensor("b", to="b.values", format="b_format"),
            out(note="may be residual", format="out_format"), optional("bias"),
            optional("residual"), optional("b_scale", to="b.scale"), optional("out_scale"),
            optional("b_zero_point", to="b.zero_point"), optional("b_order", to="b.order"),
            count("b_rows_per_scale", "0: 1", to="b.rows_per_scale", keeps_default=True),
            count("b_group", "elements of k per scale; 0: k / groups", to="b.group"),
            choice("activation", ACTIVATION, "TesseraActivation or TESSERA_NO_ACTIVATION",
                   may_be_none=True),
            Field("flags", "bits", "of TesseraGemmFlags", enum=GEMM_FLAGS,
                  members={"gated": "is_gated", "allow_tf32": "allow_tf32",
                           "static_b": "b.is_static"}),
            format_of("out_format", "of out"), format_of("b_format", "of b"),
            choice("b_packing", PACKING, to="b.packing"), reserved()),
        struct="TesseraGemmArgs", cpp="gemm", reader="read_gemm_args",
        doc="tessera_gemm with every form of a quantised weight."),
    Operation(
        "pack_weight", "PackWeightArgs", "gemm.h", (
            *weight_tensors("weight"),
            *weight_tensors("out", "out_", out, optional_out),
            count("group", "elements of k per scale; 0: k / groups", to="weight.group"),
            format_of("format", "of values and out_values"),
            choice("packing", PACKING, to="weight.packing"),
            choice("out_packing", PACKING, to="out.packing"), reserved()),
        struct="TesseraPackWeightArgs", is_step=True,
        doc="values and scale are given; shapes of out are those of the weight. Scales in rows "
            "are f32. Packed scales may also be f16 or bf16, to which they are rounded."),
    Operation(
        "gemm_codes", "GemmArgs", "gemm.h", (
            tensor("a", format="a_format"), tensor("b", to="b.values", format="b_format"),
            out(note="may be residual", format="out_format"), optional("a_scale"),
            optional("b_scale", to="b.scale"), optional("bias"), optional("residual"),
            optional("out_scale"), optional("a_zero_point"),
            optional("b_row_sums", to="b.row_sums"),
            count("b_rows_per_scale", "0: 1", to="b.rows_per_scale", keeps_default=True),
            count("b_group", "elements of k per scale; 0: k / groups", to="b.group"),
            choice("activation", ACTIVATION, "TesseraActivation or TESSERA_NO_ACTIVATION",
                   may_be_none=True),
            Field("flags", "bits", "of TesseraGemmFlags", enum=GEMM_FLAGS,
                  members={"gated": "is_gated", "allow_tf32": "allow_tf32",
                           "static_b": "b.is_static"}),
            format_of("out_format", "of out"), format_of("a_format", "of a"),
            format_of("b_format", "of b"),
            switch("sums_in_float", "1: e4m3 is added in float after every 128 elements")),
        struct="TesseraGemmCodesArgs", cpp="gemm",
        doc="tessera_gemm with codes on both sides: int8 or e4m3 beside the same or int4, int4 "
            "beside int4, and uint8 with zero points beside int8."),
    Operation("sum_weight_rows", "SumWeightRowsArgs", "gemm.h", (tensor("values"), out()),
              is_step=True, doc="out[j] = the sum of row j, for products whose a has zero points."),
    Operation(
        "gemm_table", "GemmArgs", "gemm.h", (
            tensor("a"), tensor("b", to="b.values", format="b_format"),
            out(note="may be residual", format="out_format"),
            optional("b_scale", to="b.scale"), optional("b_table", to="b.table"),
            optional("bias"), optional("residual"), optional("out_scale"),
            count("b_rows_per_scale", "0: 1", to="b.rows_per_scale", keeps_default=True),
            count("b_group", "elements of k per scale; 0: k / groups", to="b.group"),
            choice("activation", ACTIVATION, "TesseraActivation or TESSERA_NO_ACTIVATION",
                   may_be_none=True),
            Field("flags", "bits", "of TesseraGemmFlags", enum=GEMM_FLAGS,
                  members={"gated": "is_gated", "allow_tf32": "allow_tf32",
                           "static_b": "b.is_static"}),
            format_of("out_format", "of out"), format_of("b_format", "of b: TESSERA_I4")),
        struct="TesseraGemmTableArgs", cpp="gemm",
        doc="tessera_gemm with a weight of 4-bit codes that are indices of b_table, 16 floats."),
]

PAGES = "TesseraDType of k_pages: e4m3, e5m2 and i4 may be given as bytes"
SCALE = number("scale", "0: 1 / sqrt(head_dim)")
SOFTCAP = number("softcap", "0: none")
LONGEST = count("longest", "of seq_lens; 0: not known", grows=True)


def kv_tensors(prefix):
    """The optional tensors of a paged KV cache; `prefix` leads to its PagedKv in C++."""
    return (optional("page_table", to=prefix + "page_table"),
            optional("k_scales", to=prefix + "k_scales"),
            optional("v_scales", to=prefix + "v_scales"),
            optional("k_tail", to=prefix + "k_tail"), optional("tails", to=prefix + "tails"))


def decode_tensors(own):
    """The tensors decode and cascade attention begin with; `own` leads to DecodeAttentionArgs."""
    kv = own + "kv."
    return (tensor("q", to=own + "q"), tensor("k_pages", to=kv + "k_pages", format="k_format"),
            tensor("v_pages", to=kv + "v_pages", format="v_format"),
            out("out", "may be q", to=own + "out"), tensor("seq_lens", to=kv + "seq_lens"),
            *kv_tensors(kv), optional_out("lse", to=own + "lse"),
            optional("sinks", to=own + "sinks"))


def listed_tensors(own):
    """Which tokens and pages a query sees, where that is not all of them."""
    return tuple(optional(name, to=own + name)
                 for name in ("tree", "blocks", "num_blocks", "keys", "num_keys"))


ATTENTION = [
    Operation(
        "attention_prefill", "AttentionArgs", "attention.h", (
            tensor("q", format="format"), tensor("k", format="format"),
            tensor("v", format="format"), out("out", "may be q"), optional_out("lse"),
            optional("intervals", to="mask.intervals"), optional("sinks"),
            optional("alibi_slopes"), optional("q_starts"), optional("kv_starts"),
            optional("kv_lens"), optional("k_page_table"), optional("v_page_table"),
            optional("q_scale"), optional("k_scale"), optional("v_scale"),
            Field("left", "bound", "keys a query sees before its own; read if LEFT is in bounds",
                  to="mask.left", bit="left"),
            Field("right", "bound", "keys it sees behind its own; read if RIGHT is in bounds",
                  to="mask.right", bit="right"),
            Field("dropout_seed", "uint64", to="dropout.seed"),
            number("dropout_rate", to="dropout.rate"),
            number("scale", "0: 1 / sqrt(d_k)"), SOFTCAP,
            Field("bounds", "bits", "of TesseraAttentionBounds", enum=ATTENTION_BOUNDS),
            format_of("format", "TesseraDType of q, k and v"),
            switch("sums_in_float", "1: e4m3 is summed in float from block to block"), reserved()),
        doc="Zeros are the defaults, which let every query see every key.",
        struct="TesseraAttentionArgs"),
    Operation(
        "attention_decode", "DecodeAttentionArgs", "attention.h", (
            *decode_tensors(""), optional("alibi_slopes"), *listed_tensors(""),
            count("window", "0: unbounded"), LONGEST, SCALE, SOFTCAP,
            format_of("k_format", PAGES), format_of("v_format", "of v_pages"),
            switch("shares_pages", "1: sequences have pages in common"), reserved()),
        doc="With the tensors of its PagedKv.", struct="TesseraDecodeAttentionArgs"),
    Operation(
        "attention_merge", "MergeAttentionArgs", "attention.h", (
            tensor("parts"), tensor("part_lses"), out(), optional_out("lse")),
        struct="TesseraMergeAttentionArgs"),
    Operation(
        "attention_cascade", "CascadeAttentionArgs", "attention.h", (
            *decode_tensors("own."), *listed_tensors("own."),
            tensor("shared_k_pages", to="k_pages"), tensor("shared_v_pages", to="v_pages"),
            optional("shared_page_table", to="page_table"), tensor("piece_lens"),
            out("parts", "scratch memory"), out("part_lses", "scratch memory"),
            count("longest", LONGEST.note, to="own.longest", grows=True),
            number("scale", SCALE.note, to="own.scale"),
            number("softcap", SOFTCAP.note, to="own.softcap"),
            format_of("k_format", "as in TesseraDecodeAttentionArgs"),
            format_of("v_format", "")),
        doc="Its `own` as in TesseraDecodeAttentionArgs, without window and alibi_slopes; then the "
            "keys that all sequences begin with; then scratch memory. Messages have the names of "
            "C++: own.q is q here, and the page_table beside piece_lens is shared_page_table.",
        struct="TesseraCascadeAttentionArgs"),
    Operation(
        "kv_append", "KvAppendArgs", "kv_cache.h", (
            tensor("k", "rotated in place if rope_q is given", written_with="rope_q"),
            tensor("v"), tensor("slots"), inout("k_pages", format="k_format"),
            inout("v_pages", format="v_format"), optional_inout("k_scales", "FP8 only reads them"),
            optional_inout("v_scales", "FP8 only reads them"), optional_inout("k_tail"),
            optional("tail_slots"),
            optional_inout("rope_q", to="rope.q", together="rope"),
            optional("rope_positions", to="rope.positions", together="rope"),
            optional("rope_table", to="rope.table", together="rope"),
            choice("rope_style", ROPE_STYLE, to="rope.style", together="rope"),
            format_of("k_format", PAGES), format_of("v_format", "of v_pages"), reserved()),
        doc="With the tensors of its rope, which are given all three or not at all.",
        struct="TesseraKvAppendArgs"),
    Operation(
        "kv_gather", "KvGatherArgs", "kv_cache.h", (
            tensor("k_pages", to="kv.k_pages", format="k_format"),
            tensor("v_pages", to="kv.v_pages", format="v_format"),
            tensor("seq_lens", to="kv.seq_lens"), tensor("starts"), out("k"), out("v"),
            *kv_tensors("kv."), format_of("k_format", "as in TesseraKvAppendArgs"),
            format_of("v_format", "")),
        doc="With the tensors of its PagedKv.", struct="TesseraKvGatherArgs"),
    Operation(
        "kv_copy_pages", "KvCopyPagesArgs", "kv_cache.h", (
            inout("k_pages", format="k_format"), inout("v_pages", format="v_format"),
            tensor("sources"), tensor("targets"), optional_inout("k_scales"),
            optional_inout("v_scales"),
            format_of("k_format", "of k_pages"), format_of("v_format", "of v_pages"))),
    Operation(
        "sample", "SampleArgs", "sample.h", (
            tensor("logits"), out("tokens"), optional("temperature"), optional("top_k"),
            optional("typical_p"), optional("top_p"), optional("min_p"), optional("seeds"),
            optional("sequences"), optional("positions"), optional("bias_starts"),
            optional("bias_tokens"), optional("bias_values"), optional("slots"),
            optional_inout("seen_tokens"), optional_inout("seen_counts"),
            optional_inout("num_seen"), optional("repetition"), optional("presence"),
            optional("frequency"), optional("masks"), optional("mask_rows")),
        doc="One token per row of logits.", struct="TesseraSampleArgs"),
    Operation(
        "token_logprobs", "TokenLogprobsArgs", "sample.h", (
            tensor("logits"), tensor("tokens"), out("logprobs"), optional_out("top_tokens"),
            optional_out("top_logprobs"))),
]
