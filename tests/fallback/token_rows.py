"""Made-up tokens for the llm, in the tiny shape."""

from __future__ import annotations

import numpy as np

from scripts.make_checkpoint import TINY


def rows(seed: int, b: int, q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """embeds, cos, sin of b sequences of q tokens; every number of cos and sin has its own angle,
    as in the rotary layout of transformers."""
    rng = np.random.default_rng(seed)
    angles = rng.standard_normal((b, q, TINY.text.head_dim), np.float32)
    embeds = rng.standard_normal((b, q, TINY.text.hidden), np.float32)
    return embeds, np.cos(angles), np.sin(angles)
