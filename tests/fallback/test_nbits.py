"""4-bit matrices: the codes mean what ONNX Runtime takes them for."""

from __future__ import annotations

import numpy as np
import pytest

from fallback.nbits import BLOCK, NBitsMatrix, quantise


@pytest.mark.parametrize("width", [40, BLOCK, 3 * BLOCK])
def test_the_kernel_multiplies_what_the_codes_say(width: int) -> None:
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((24, width), np.float32)
    weight[0] = 0  # a row without a scale of its own
    x = rng.standard_normal((1, width), np.float32)
    codes, scales = quantise(weight)
    values = np.stack([codes & 15, codes >> 4], -1).reshape(24, -1, BLOCK).astype(np.float32) - 8
    held = (values * scales[..., None]).reshape(24, -1)[:, :width]
    got = NBitsMatrix(weight, threads=1)(x)
    assert np.linalg.norm(got - x @ held.T) < 0.02 * np.linalg.norm(x @ held.T)
    assert np.linalg.norm(held - weight) < 0.13 * np.linalg.norm(weight)
    assert not got[0, 0]
