"""The llm in 8 and 4 bits is the model, nearly: prompts, drafts, single tokens, batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fallback.checkpoint import Checkpoint
from fallback.chunk import causal_mask
from fallback.errors import GraphInputError
from fallback.quantised_llm import QuantisedCache
from fallback.torch_engine import TorchEngine
from scripts.make_checkpoint import TINY
from tests.fallback.token_rows import rows

LAYERS, WIDTH = TINY.text.layers, TINY.text.kv_width


@pytest.fixture(scope="module", params=["int8", "int4"])
def engine(request: pytest.FixtureRequest, tiny: Checkpoint) -> Iterator[TorchEngine]:
    with TorchEngine.open(tiny, request.param, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def exact(tiny: Checkpoint) -> Iterator[TorchEngine]:
    with TorchEngine.open(tiny, "fp32", threads=1) as opened:
        yield opened


def held(cache: QuantisedCache, slot: int) -> np.ndarray:
    """The rows of a slot, (2, layers, length, K·D)."""
    both = np.stack([cache.keys[:, slot], cache.values[:, slot]]).swapaxes(2, 3)
    return both[:, :, : cache.lengths[slot]].reshape(2, LAYERS, -1, WIDTH).copy()


def test_prompt_draft_and_tokens_follow_the_float32_model(
    engine: TorchEngine, exact: TorchEngine
) -> None:
    bound = {"int8": 0.06, "int4": 0.6}[engine.settings["precision"]]
    ours, theirs = engine.kv_cache(2, 16), exact.kv_cache(1, 16)
    for seed, count in enumerate((6, 3, 1, 1)):
        parts, wanted = rows(seed, 1, count), [[count - 1, 0]]
        got = engine.extend(ours, 1, [count], *parts, wanted)
        want = exact.extend(theirs, 0, [count], *parts, wanted)
        assert np.linalg.norm(got - want) < bound * np.linalg.norm(want)
    assert ours.lengths.tolist() == [0, 11]
    want = np.stack([theirs.keys[:, 0, :11], theirs.values[:, 0, :11]])
    assert 0 < np.linalg.norm(held(ours, 1) - want) < bound * np.linalg.norm(want)
    assert not ours.keys[:, 0].any() and not ours.keys[:, 1, :, 11:].any()  # nobody else's rows


def test_a_long_prompt_is_the_same_in_parts(engine: TorchEngine) -> None:
    length, wanted = 600, [3, 255, 256, 599]
    whole, parts = engine.kv_cache(1, length), engine.kv_cache(1, length)
    prompt = rows(1, 1, length)
    want = engine.extend(whole, 0, [length], *prompt, [wanted])[0]
    got = []
    for start in range(0, length, 200):
        here = [i - start for i in wanted if start <= i < start + 200]
        piece = (part[:, start : start + 200] for part in prompt)
        got.append(engine.extend(parts, 0, [200], *piece, [here])[0])
    np.testing.assert_allclose(np.concatenate(got), want, atol=0.05)
    np.testing.assert_allclose(held(parts, 0), held(whole, 0), atol=0.05)


def test_an_idle_sequence_of_a_batch_keeps_its_rows(engine: TorchEngine) -> None:
    cache = engine.kv_cache(3, 8)
    for slot, count in enumerate((8, 4, 2)):  # the first one is full
        engine.extend(cache, slot, [count], *rows(slot, 1, count), [[]])
    before = [held(cache, slot) for slot in range(3)]
    logits = engine.extend(cache, 0, [0, 1, 1], *rows(9, 3, 1), [[0]] * 3)
    assert cache.lengths.tolist() == [8, 5, 3]
    assert not logits[0].any() and logits[1:].any(-1).all()
    for slot, kept in enumerate(before):
        np.testing.assert_array_equal(held(cache, slot)[:, :, : kept.shape[2]], kept)


def test_a_broken_token_breaks_its_logits_and_no_other(engine: TorchEngine) -> None:
    cache, (embeds, cos, sin) = engine.kv_cache(3, 8), rows(1, 3, 1)
    embeds[1, 0, 3] = np.nan
    logits = engine.extend(cache, 0, [1] * 3, embeds, cos, sin, [[0]] * 3)
    assert np.isnan(logits[1]).all() and np.isfinite(logits[::2]).all()


def test_the_graph_by_its_contract_is_the_same_step(engine: TorchEngine) -> None:
    cache, past, step = engine.kv_cache(2, 9), rows(1, 2, 5), rows(2, 2, 3)
    engine.extend(cache, 0, [5, 2], *past, [[], []])
    first = [held(cache, slot) for slot in range(2)]
    want = engine.extend(cache, 0, [3, 3], *step, [[2], [0]])
    pasts = np.full((2, LAYERS, 2, 5, WIDTH), 7, np.float32)  # what is masked does not count
    for slot, seen in enumerate(first):
        pasts[:, :, slot, : seen.shape[2]] = seen
    inputs = dict(zip(("embeds", "cos", "sin"), step, strict=True))
    lengths = np.array([5, 2])
    inputs["past_mask"] = np.where(np.arange(5) < lengths[:, None], 0, -1e4)[:, None].astype("f")
    inputs["chunk_mask"] = np.stack([causal_mask(3)] * 2)
    inputs["select"] = np.eye(3, dtype=np.float32)[[[2], [0]]]
    for side, name in enumerate(("key", "value")):
        inputs |= {f"past_{name}.{i}": pasts[side, i] for i in range(LAYERS)}
    got = engine.run("llm", inputs)
    np.testing.assert_array_equal(got["logits"].numpy(), want)
    np.testing.assert_array_equal(got["new_value.1"].numpy()[1], held(cache, 1)[1, 1, 2:])
    inputs["chunk_mask"] = np.zeros((2, 3, 3), np.float32)
    with pytest.raises(GraphInputError, match="int8 and int4 know causal masks only"):
        engine.run("llm", inputs)


def test_more_rows_than_there_were_are_not_forgotten(engine: TorchEngine) -> None:
    cache = engine.kv_cache(1, 4)
    engine.extend(cache, 0, [2], *rows(1, 1, 2), [[]])
    with pytest.raises(GraphInputError, match="slot 0 holds 2 rows, not 3"):
        cache.truncate(0, 3)
