// The sampling tables of both libraries. They hold the same kernels; on sm90 a cluster of blocks
// shares a row.
// SPDX-License-Identifier: MIT
#include "kernels/sampling/rows.h"

#include "kernels/sampling/params.h"

namespace tessera::kernels {
namespace {

template <class Arch>
constexpr Row<SampleArgs> sample_table[] = {
    {"sample", Arch::library, {DType::f32, DType::i32}, &launch_sample<Arch>, "f32"}};
template <class Arch>
constexpr Row<TokenLogprobsArgs> token_logprobs_table[] = {
    {"token_logprobs", Arch::library, {DType::f32, DType::f32}, &launch_token_logprobs<Arch>}};

template <class Arch>
constexpr SamplingRows rows{sample_table<Arch>, token_logprobs_table<Arch>};

}  // namespace

const SamplingRows& sampling_rows() { return rows<Portable>; }
#ifdef TESSERA_SM90
const SamplingRows& sampling_rows_sm90() { return rows<Sm90>; }
#endif

}  // namespace tessera::kernels
