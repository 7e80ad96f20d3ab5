"""The exported HunyuanOCR graphs on ONNX Runtime answer as the PyTorch engine does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fallback.checkpoint import Checkpoint
from fallback.errors import GraphInputError
from fallback.ort_engine import OrtEngine
from fallback.torch_engine import TorchEngine
from tests.fallback.reference import TRAIN, greedy, image_rows, make_prompt, prompt_inputs


@pytest.fixture(scope="module")
def engines(one_layer_graphs: tuple[Path, Path]) -> Iterator[tuple[TorchEngine, OrtEngine]]:
    folder, graphs = one_layer_graphs
    files = {name: graphs / f"{name}.onnx" for name in ("vision", "llm")}
    with TorchEngine.open(folder, "fp32", 1) as torch, OrtEngine(files, threads=1) as ort:
        yield torch, ort


def test_image_rows_and_tokens_are_equal(
    engines: tuple[TorchEngine, OrtEngine], one_layer_graphs: tuple[Path, Path]
) -> None:
    tables = Checkpoint(one_layer_graphs[0]).tables()
    for grid in ((6, 8), (8, 4)):
        prompt, answers = make_prompt(tables, grid, (72, 105, 259), seed=4), []
        for engine in engines:
            rows = image_rows(engine, tables, prompt, "scale")
            inputs = prompt_inputs(engine, tables, prompt, TRAIN)
            answers.append((rows, *greedy(engine, tables, inputs, 16, TRAIN, chunk=11)))
        assert answers[0][1] == answers[1][1]
        for ours, theirs in ((answers[0][0], answers[1][0]), (answers[0][2], answers[1][2])):
            assert np.abs(ours - theirs).max() < 1e-4


def test_several_slots_draft_rows_and_a_truncation(
    engines: tuple[TorchEngine, OrtEngine],
) -> None:
    rng = np.random.default_rng(1)
    caches = [engine.kv_cache(3, 12) for engine in engines]

    def both(first: int, counts: list[int], select: list[list[int]]) -> None:
        b, q = len(counts), max(counts)
        angles = rng.standard_normal((b, q, 16), np.float32)
        step = rng.standard_normal((b, q, 64), np.float32), np.cos(angles), np.sin(angles)
        got = [
            e.extend(c, first, counts, *step, select) for e, c in zip(engines, caches, strict=True)
        ]
        used = [b for b in range(len(counts)) if counts[b]]
        np.testing.assert_allclose(got[1][used], got[0][used], atol=1e-4)
        assert got[1].shape == got[0].shape

    both(0, [4, 2, 0], [[3], [1], [0]])
    both(1, [1, 3], [[0], [0]])
    both(1, [3], [[0, 1, 2]])
    for cache in caches:
        cache.truncate(1, 4)
    both(1, [2], [[]])
    both(0, [1, 1, 1], [[0], [0], [0]])
    assert caches[0].lengths.tolist() == caches[1].lengths.tolist() == [5, 7, 4]


def test_an_engine_without_the_llm_has_no_cache(one_layer_graphs: tuple[Path, Path]) -> None:
    with OrtEngine({"vision": one_layer_graphs[1] / "vision.onnx"}, threads=1) as engine:
        with pytest.raises(GraphInputError, match=r"no graph 'llm' is open \(open: vision\)"):
            engine.kv_cache(1, 8)
