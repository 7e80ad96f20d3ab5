"""4-bit and 8-bit matrices: the codes mean what ONNX Runtime takes them for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallback.nbits import BLOCK, Graph, quantise


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("width", [40, BLOCK, 3 * BLOCK])
def test_the_kernel_multiplies_what_the_codes_say(width: int, bits: int) -> None:
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((24, width), np.float32)
    weight[0] = 0  # a row without a scale of its own
    x = rng.standard_normal((1, width), np.float32)
    codes, scales = quantise(torch.from_numpy(weight), bits)
    wide = np.stack([codes & 15, codes >> 4], -1) if bits == 4 else codes
    values = wide.reshape(24, -1, BLOCK).astype(np.float32) - (1 << (bits - 1))
    held = (values * scales[..., None]).reshape(24, -1)[:, :width]
    graph = Graph(bits)
    product = graph.matmul(graph.input("x", 1, width), list(torch.from_numpy(weight).split(10)))
    graph.op("Identity", product, out=graph.output("y", 1, 24))
    got = graph.open(threads=1).run(None, {"x": x})[0]
    assert np.linalg.norm(got - x @ held.T) < 0.02 * np.linalg.norm(x @ held.T)
    assert np.linalg.norm(held - weight) < {4: 0.13, 8: 0.01}[bits] * np.linalg.norm(weight)
    assert not got[0, 0]
