# Work on a GPU captured once, to be replayed.
# SPDX-License-Identifier: MIT
import torch


def record_cuda(step, inputs, pool):
    """(replay, result) of a function of some tensors whose work is captured as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # once plainly, so that nothing is set up while capturing
        step(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        result = step(*inputs)
    return graph.replay, result
