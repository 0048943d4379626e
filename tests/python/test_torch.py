# Every operation on PyTorch's CPU tensors against the PyTorch expression of it.
# SPDX-License-Identifier: MIT
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import torch_cases  # noqa: E402


@pytest.mark.parametrize("dtype", torch_cases.DTYPES, ids=str)
@pytest.mark.parametrize("case", torch_cases.CASES)
def test_agrees_with_pytorch(case, dtype):
    if case == "quantize_fp8" and not torch_cases.FP8:
        pytest.skip(f"PyTorch {torch.__version__} has no float8 dtypes")
    torch_cases.CASES[case]("cpu", dtype)


def test_fp8_is_stored_in_bytes_where_pytorch_has_no_such_type():
    if torch_cases.FP8:
        pytest.skip("this PyTorch has float8 dtypes")
    q, scale = tessera.quantize(torch.tensor([[448.0, -1.0]]), "float8_e4m3fn")
    assert q.dtype == torch.uint8 and q.tolist() == [[0x7E, 0xB8]] and scale.tolist() == [[1.0]]


def test_a_lazily_negated_tensor_is_refused():
    x = torch.tensor([[1 + 2j, 3 - 4j]]).conj().imag  # holds 2 and -4, and stands for -2 and 4
    with pytest.raises(tessera.Error, match="copy: x is lazily conjugated or negated"):
        tessera.copy(x)
    assert tessera.copy(x.resolve_neg()).tolist() == [[-2, 4]]


def test_a_parameter_is_taken_without_grad():
    x, weight = torch.ones(2, 4), torch.nn.Parameter(torch.ones(4))
    with pytest.raises(tessera.Error, match="rms_norm: weight requires grad.*no_grad"):
        tessera.rms_norm(x, weight)
    with torch.no_grad():
        got = tessera.rms_norm(x, weight)
    assert type(got) is torch.Tensor and not got.requires_grad
    assert type(tessera.silu(weight.detach())) is torch.Tensor


def test_a_subclass_goes_through_the_public_protocol():
    class Tagged(torch.Tensor):
        pass

    x = torch.randn(2, 8)
    got = tessera.rms_norm(x.as_subclass(Tagged), torch.ones(8), out=torch.empty(2, 8))
    assert torch.equal(got, tessera.rms_norm(x, torch.ones(8)))


def test_numpy_and_pytorch_may_be_mixed_on_the_cpu():
    x = torch.randn(2, 8)
    out = torch.empty(2, 8).numpy()
    tessera.rms_norm(x, torch.ones(8), out=out)
    assert torch.equal(torch.from_numpy(out), tessera.rms_norm(x, torch.ones(8)))


def test_a_sparse_or_meta_tensor_is_refused():
    with pytest.raises(tessera.Error, match="copy: x .*"):
        tessera.copy(torch.eye(2).to_sparse(), out=torch.empty(2, 2))
    with pytest.raises(tessera.Error, match="copy: x .*"):
        tessera.copy(torch.empty(2, 2, device="meta"), out=torch.empty(2, 2))


def test_tensors_are_released_after_the_call():
    import sys

    x, weight, out = torch.randn(2, 8), torch.ones(8), torch.empty(2, 8)
    tessera.rms_norm(x, weight, out=out)
    before = [sys.getrefcount(t) for t in (x, weight, out)]
    for _ in range(1000):
        tessera.rms_norm(x, weight, out=out)
    assert [sys.getrefcount(t) for t in (x, weight, out)] == before
