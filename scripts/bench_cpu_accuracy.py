"""What a precision costs: every profile of the CPU engine against fp32 on one random page, and on a
sheet of labelled slips where the checkpoint has one (`scripts/train_reader/sheet.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ascend.api import OCR
from fallback.checkpoint import Checkpoint, HostTables
from fallback.torch_engine import TorchEngine
from host_pipeline.positions import (
    block_order,
    image_tokens,
    interpolate_positions,
    inv_freq,
    position_ids,
    rotary,
)
from scripts.train_reader.sheet import Sheet

GRID = (30, 40)
TOKENS = 32
TEXT = (5055, 951, 9977, 12858, 1843, 9738, 270, 934, 8433, 4699, 68216, 8287, 292, 120006)


def compare_profiles(
    folder: Path, profiles: Sequence[str], threads: int
) -> dict[str, dict[str, float]]:
    """Profile -> relative error of the image rows, of the first logits, and how many of the TOKENS
    tokens that fp32 chooses the profile would have chosen in its place."""
    checkpoint = Checkpoint(folder)
    tables = checkpoint.tables()
    with TorchEngine.open(checkpoint, "fp32", threads) as exact:
        rows = _content(exact, tables)
        answer, logits = _decode(exact, tables, rows, None)
    costs = {}
    for profile in profiles:
        if profile == "fp32":
            continue
        with TorchEngine.open(checkpoint, profile, threads) as engine:
            got = _content(engine, tables)
            chosen, other = _decode(engine, tables, got, answer)
        costs[profile] = {
            "rows": _relative(got, rows),
            "logits": _relative(other, logits),
            f"equal choices of {TOKENS}": float(np.sum(np.equal(chosen, answer))),
        }
    return costs


def read_sheet(folder: Path, profiles: Sequence[str], threads: int) -> dict[str, dict[str, float]]:
    """Profile, fp32 first -> character error rate and others of the answers to sheet.json, and how
    many differ from fp32's by a letter or more.
    """
    sheet, costs, exact = Sheet(folder), {}, []
    every = range(len(sheet.slips))
    for profile in ("fp32", *(p for p in profiles if p != "fp32")):
        with OCR(str(folder), "torch", precision=profile, threads=threads) as ocr:
            answers = [sheet.read(ocr, index) for index in every]
        exact = exact or answers
        changed = sum(a != b for a, b in zip(answers, exact, strict=True))
        costs[profile] = {**sheet.score(answers), f"answers changed of {len(every)}": changed}
    return costs


def _relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def _content(engine: TorchEngine, tables: HostTables) -> np.ndarray:
    order = block_order(*GRID)
    patches = np.random.default_rng(0).standard_normal((len(order), 768), np.float32)
    pos = interpolate_positions(tables.position_table, *GRID) + tables.patch_bias
    mask = np.zeros((1, len(order)), np.float32)
    inputs = {"patches": patches, "pos": pos[order], "mask": mask}
    return engine.run("vision", inputs)["content"].numpy()


def _decode(
    engine: TorchEngine, tables: HostTables, content: np.ndarray, forced: Sequence[int] | None
) -> tuple[list[int], np.ndarray]:
    """The greedy choice at each of TOKENS places, and the first logits; `forced` is fed instead
    of the choice, so that one different token does not change all later ones.
    """
    text = tables.checkpoint.dims.text
    width = GRID[1] // 2
    lines = content.reshape(-1, width, content.shape[-1])
    newline = np.broadcast_to(tables.newline, (len(lines), 1, lines.shape[-1]))
    image = np.concatenate([lines, newline], 1).reshape(-1, lines.shape[-1])
    image = np.concatenate([tables.begin[None], image, tables.end[None]])
    ids = [token % text.vocab for token in TEXT]
    before = tables.embed_rows([0, 1, 2])
    embeds = np.concatenate([before, image, tables.embed_rows(ids)])
    assert len(image) == image_tokens(*GRID)
    rows = position_ids(len(embeds), [(3, *GRID)])
    cache = engine.kv_cache(1, len(embeds) + TOKENS)
    chosen: list[int] = []
    first = np.empty(0)
    while len(chosen) < TOKENS:
        frequencies = inv_freq(text.rope_theta, text.rope_alpha, text.head_dim)
        turned = rotary(rows, frequencies, text.rope_sections)
        step = (embeds[None], *(part[None] for part in turned))
        logits = engine.extend(cache, 0, [len(embeds)], *step, [[len(embeds) - 1]])[0, 0]
        first = first if chosen else logits.copy()
        chosen.append(int(logits.argmax()))
        follow = chosen[-1] if forced is None else forced[len(chosen) - 1]
        embeds = tables.embed_rows([follow])
        rows = position_ids(1, start=int(cache.lengths[0]))
    return chosen, first
