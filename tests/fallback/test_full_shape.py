"""The released sizes with random weights against transformers: minutes and 12 GB, so marked slow.

The figures are printed: run with -s to see them.
"""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch

from fallback.checkpoint import Checkpoint, HostTables
from fallback.dims import FULL
from fallback.torch_engine import TorchEngine
from scripts.make_checkpoint import write_checkpoint
from tests.fallback.reference import (
    HF,
    Prompt,
    greedy,
    image_rows,
    load_reference,
    make_prompt,
    prompt_inputs,
    reference_greedy,
    reference_image_rows,
)

SPOTTING = (5055, 951, 9977, 12858, 1843, 9738, 270, 934, 8433, 4699, 68216, 8287, 292, 120006)
TOKENS = 64
BOUND = 1e-4  # max |Δ| in float32, as in the issue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("full") / "model"
    write_checkpoint(path, FULL, seed=1, dtype=torch.bfloat16)
    return path


@pytest.mark.slow
@pytest.mark.large
def test_the_full_shape_equals_the_reference(folder: Path) -> None:
    checkpoint = Checkpoint(folder)
    tables = checkpoint.tables()
    wide = make_prompt(tables, (30, 40), SPOTTING, seed=1)  # 480×640: 317 image tokens, 335 in all
    tall = make_prompt(tables, (24, 16), SPOTTING, seed=2)
    assert len(wide.ids) == 335
    with TorchEngine.open(checkpoint, "fp32") as engine:
        ours = {"wide": _answer(engine, tables, wide), "tall": _answer(engine, tables, tall)}
    gc.collect()
    model = load_reference(folder, attention="sdpa")
    for name, prompt in (("wide", wide), ("tall", tall)):
        rows, tokens, logits = ours[name]
        want_rows = reference_image_rows(model, prompt)
        want_tokens, want_logits = reference_greedy(model, prompt, TOKENS)
        row_gap = np.abs(rows - want_rows).max()
        prefill_gap = np.abs(logits[0] - want_logits[0]).max()
        gap = np.abs(logits - want_logits).max()
        print(f"\n{name}: rows {row_gap:.1e}, prefill {prefill_gap:.1e}, all {gap:.1e}")
        assert tokens == want_tokens
        assert row_gap < BOUND and prefill_gap < BOUND


def _answer(
    engine: TorchEngine, tables: HostTables, prompt: Prompt
) -> tuple[np.ndarray, list[int], np.ndarray]:
    rows = image_rows(engine, tables, prompt, "size")
    inputs = prompt_inputs(engine, tables, prompt, HF)
    return rows, *greedy(engine, tables, inputs, TOKENS, HF)
