# How calls of PyTorch are timed: as `tessera bench` times its own.
# SPDX-License-Identifier: MIT
"""Medians over CUDA-graph replays of at least 20 calls, on input sets that rotate past twice the L2
cache."""

import math

import torch


def num_sets(one_set):
    """Sets in a rotation of at least twice the L2 cache, and never fewer than two."""
    tensors = [t for t in one_set.values() if t is not None]
    size = sum(t.numel() * t.element_size() for t in tensors)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    free = torch.cuda.mem_get_info()[0]
    return max(2, min(4096, 2 * l2 // max(size, 1) + 1, free // (4 * max(size, 1))))


def time_us(call, sets, seconds=0.1):
    """(median, p10, p90) microseconds of call(set), sets taking turns in one captured graph."""
    num_calls = len(sets) * -(-20 // len(sets))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            call(sets[i % len(sets)])
    torch.cuda.synchronize()

    def record(count):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(count):
                call(sets[i % len(sets)])
        return graph

    def replay(graph, count):
        # One extra replay first, which absorbs the host's latency; then events between replays and
        # one wait at the end.
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        graph.replay()
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e3 for a, b in zip(marks, marks[1:])]

    graph = record(num_calls)
    batch_us = max(replay(graph, 3)[-1], 1e-3)
    if batch_us < 500:  # long enough that gaps between graphs do not count
        num_calls *= math.ceil(500 / batch_us)
        graph = record(num_calls)
        batch_us = max(replay(graph, 2)[-1], 1e-3)
    num_replays = int(min(200, max(10, seconds * 1e6 / batch_us)))
    times = sorted(t / num_calls for t in replay(graph, num_replays))
    return times[len(times) // 2], times[len(times) // 10], times[len(times) * 9 // 10]
