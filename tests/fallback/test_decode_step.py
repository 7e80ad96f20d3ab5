"""The graphs between attentions are the model: in 8 bits they give what float32 gives, nearly."""

from __future__ import annotations

import numpy as np
import torch

from fallback.checkpoint import Checkpoint
from fallback.decode_step import DecodeStep
from fallback.torch_engine import TorchEngine
from scripts.make_checkpoint import TINY


def rows(seed: int, q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    angles = rng.standard_normal((1, q, TINY.text.head_dim), np.float32)
    embeds = rng.standard_normal((1, q, TINY.text.hidden), np.float32)
    return embeds, np.cos(angles), np.sin(angles)


def test_eight_bit_steps_follow_the_float32_model(tiny: Checkpoint) -> None:
    step = DecodeStep(tiny.tensor, tiny.dims.text, bits=8, threads=1)
    with TorchEngine.open(tiny, "fp32", threads=1) as engine:
        exact, cache = engine.kv_cache(1, 16), engine.kv_cache(2, 16)
        prompt = rows(1, 6)
        engine.extend(exact, 0, [6], *prompt, [[]])
        engine.extend(cache, 1, [6], *prompt, [[]])
        for length in range(6, 10):
            token = rows(length, 1)
            want = engine.extend(exact, 0, [1], *token, [[0]])[0]
            parts = (torch.from_numpy(part[0, 0]) for part in token)
            got = step(*parts, cache.keys[:, 1], cache.values[:, 1], length).numpy()
            assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)
        for ours, theirs in ((cache.keys, exact.keys), (cache.values, exact.values)):
            error = (ours[:, 1, :10] - theirs[:, 0, :10]).norm() / theirs.norm()
            assert 0 < error < 0.05
            assert not ours[:, 1, 10:].any() and not ours[:, 0].any()  # nobody else's rows


def test_a_broken_token_breaks_its_logits(tiny: Checkpoint) -> None:
    with TorchEngine.open(tiny, "int4", threads=1) as engine:
        cache = engine.kv_cache(1, 16)
        embeds, cos, sin = rows(1, 1)
        assert np.isfinite(engine.extend(cache, 0, [1], embeds, cos, sin, [[0]])).all()
        embeds[0, 0, 3] = np.nan
        assert np.isnan(engine.extend(cache, 0, [1], embeds, cos, sin, [[0]])).all()
