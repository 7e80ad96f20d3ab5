"""Our model against transformers' on the same files, in float32: rows, logits, tokens."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from fallback.checkpoint import Checkpoint, HostTables
from fallback.torch_engine import TorchEngine
from tests.fallback.reference import (
    HF,
    TRAIN,
    Prompt,
    greedy,
    image_rows,
    make_prompt,
    prompt_inputs,
    reference_greedy,
    reference_image_rows,
    use_training_maths,
)

BOUND = 1e-4  # max |Δ| in float32; measured 1e-5 and less
TEXT = (72, 105, 33, 259)  # "Hi!" and the end of the user's turn
GRIDS = (
    (12, 18),
    (18, 12),
    (4, 40),
    (32, 32),
)  # landscape, portrait, a strip, the table's own size


@pytest.fixture(scope="module")
def engine(tiny: Checkpoint) -> TorchEngine:
    return TorchEngine.open(tiny, "fp32", threads=1)


@pytest.fixture(scope="module")
def tables(tiny: Checkpoint) -> HostTables:
    return tiny.tables()


@pytest.fixture(scope="module")
def trained(reference: Any) -> Any:
    model = copy.deepcopy(reference)
    use_training_maths(model)
    return model


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("profile", [HF, TRAIN], ids=["hf5", "train"])
def test_image_rows_equal_the_reference(
    engine: TorchEngine, tables: HostTables, reference: Any, trained: Any, grid: Any, profile: Any
) -> None:
    prompt = make_prompt(tables, grid, TEXT, seed=grid[0])
    want = reference_image_rows(reference if profile is HF else trained, prompt)
    got = image_rows(engine, tables, prompt, profile[1])
    assert got.shape == want.shape
    assert np.abs(got - want).max() < BOUND


@pytest.mark.parametrize("grid", GRIDS[:3])
@pytest.mark.parametrize("profile", [HF, TRAIN], ids=["hf5", "train"])
def test_logits_and_64_greedy_tokens_equal_the_reference(
    engine: TorchEngine, tables: HostTables, reference: Any, trained: Any, grid: Any, profile: Any
) -> None:
    prompt = make_prompt(tables, grid, TEXT, seed=grid[1])
    model = reference if profile is HF else trained
    want_tokens, want = reference_greedy(model, prompt, 64)
    inputs = prompt_inputs(engine, tables, prompt, profile)
    tokens, logits = greedy(engine, tables, inputs, 64, profile)
    assert tokens == want_tokens
    assert len(set(tokens)) > 3, "a constant answer proves nothing"
    assert np.abs(logits - want).max() < BOUND


def test_the_profiles_differ_on_images_and_agree_on_text(
    engine: TorchEngine, tables: HostTables
) -> None:
    prompt = make_prompt(tables, (12, 18), TEXT, seed=1)
    scale, size = (image_rows(engine, tables, prompt, mode) for mode in ("scale", "size"))
    assert np.abs(scale - size).max() > 0.01
    text = Prompt(list(b"only text"), 0, (2, 2), prompt.patches[:4])
    hf, train = (_text_logits(engine, tables, text, p) for p in (HF, TRAIN))
    np.testing.assert_array_equal(hf, train)


def _text_logits(engine: TorchEngine, tables: HostTables, text: Prompt, profile: Any) -> np.ndarray:
    from host_pipeline.positions import position_ids
    from tests.fallback.reference import Inputs, rotate

    turned = rotate(tables, position_ids(len(text.ids)), profile)
    return greedy(engine, tables, Inputs(tables.embed_rows(text.ids), *turned), 1, profile)[1]


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_prompt_in_chunks_gives_what_it_gives_at_once(
    engine: TorchEngine, tables: HostTables, chunk: int
) -> None:
    inputs = prompt_inputs(engine, tables, make_prompt(tables, (8, 12), TEXT, seed=2), TRAIN)
    tokens, logits = greedy(engine, tables, inputs, 8, TRAIN)
    again, close = greedy(engine, tables, inputs, 8, TRAIN, chunk=chunk)
    assert again == tokens
    assert np.abs(logits - close).max() < BOUND
