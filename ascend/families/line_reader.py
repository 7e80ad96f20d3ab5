"""What the lines of a page say: the direction and recognition graphs on crops.

Without gears (a CPU) each line has its own width, and several threads share the lines; with gears
(an NPU) lines of like width go in padded batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine
from ascend.families.cascade_settings import CascadeSettings
from host_pipeline.recognize import (
    CLS_WIDTH,
    REC_HEIGHT,
    Reading,
    ctc_decode,
    rec_input,
    rec_width,
    split_at_gaps,
)
from profiling.spans import span

Crop = NDArray[np.uint8]
Gears = Sequence[Mapping[str, int]]


def go_on() -> None:
    """The check of a page that nobody stops."""


class LineReader:
    """Reads crops with the graphs `cls` and `rec` of an engine, which it borrows. `characters` maps
    a class of `rec` to its character. Close it: it may own threads."""

    def __init__(
        self, engine: Engine, characters: Sequence[str], settings: CascadeSettings
    ) -> None:
        self._engine, self._characters, self._settings = engine, characters, settings
        self._pool = ThreadPoolExecutor(engine.parallel, "lines") if engine.parallel > 1 else None

    def close(self) -> None:
        """End the threads; idempotent."""
        if self._pool is not None:
            self._pool.shutdown()

    def upright(self, crops: list[Crop]) -> list[Crop]:
        """The crops, those that stand on their head turned over."""
        if not crops:
            return crops
        flags = self.directions(crops) > self._settings.turned_score
        return [half_turn(c) if flag else c for c, flag in zip(crops, flags, strict=True)]

    def directions(self, crops: Sequence[Crop]) -> NDArray[np.float32]:
        """Probability of standing on its head for each crop (n,), by the graph `cls`."""
        with span("cls"):
            batches = _batches(len(crops), self._engine.gears("cls"), 8)
            out: list[float] = []
            for start, size, padded in batches:
                image = rec_input(crops[start : start + size], CLS_WIDTH)
                image = _padded(image, padded)
                out.extend(self._engine.run("cls", {"image": image})["probs"].numpy()[:size, 1])
            return np.asarray(out, np.float32)

    def read(self, crops: Sequence[Crop], check: Callable[[], None] = go_on) -> list[Reading]:
        """The reading of each crop; crops wider than the widest canvas are read in pieces."""
        widest = self._settings.max_rec_width / REC_HEIGHT
        pieces = [(i, extent) for i, c in enumerate(crops) for extent in split_at_gaps(c, widest)]
        parts = [crops[i][:, a:b] for i, (a, b) in pieces]
        with span("rec"):
            readings = self._read_pieces(parts, check)
        joined: list[list[Reading]] = [[] for _ in crops]
        for (i, _), reading in zip(pieces, readings, strict=True):
            joined[i].append(reading)
        return [_join(parts) for parts in joined]

    def _read_pieces(self, parts: Sequence[Crop], check: Callable[[], None]) -> list[Reading]:
        widths = [rec_width(p) for p in parts]
        # Widest first: threads that share the lines then end together.
        order = sorted(range(len(parts)), key=lambda i: -widths[i])
        out: list[Reading | None] = [None] * len(parts)

        def read(batch: tuple[list[int], int, int]) -> None:
            group, canvas, padded = batch
            check()
            image = _padded(rec_input([parts[i] for i in group], canvas), padded)
            answer = self._engine.run("rec", {"image": image})
            ids, scores = answer["ids"].numpy(), answer["scores"].numpy()
            for row, i in enumerate(group):
                out[i] = ctc_decode(ids[row], scores[row], self._characters)

        batches = list(_rec_batches(order, widths, self._engine.gears("rec")))
        for _ in self._pool.map(read, batches) if self._pool else map(read, batches):
            pass
        return [r for r in out if r is not None]


def half_turn(crop: Crop) -> Crop:
    """The crop turned upside down."""
    return np.ascontiguousarray(crop[::-1, ::-1])


def _join(parts: list[Reading]) -> Reading:
    if len(parts) == 1:
        return parts[0]
    chars = [score for part in parts for score in part.char_scores]
    score = float(np.mean(chars)) if chars else 0.0
    return Reading("".join(part.text for part in parts), score, tuple(chars))


def _batches(count: int, gears: Gears | None, free: int) -> Iterator[tuple[int, int, int]]:
    """(start, size, padded size) that cover `count` items, in sizes the gears allow."""
    sizes = sorted(g["B"] for g in gears) if gears else None
    start = 0
    while start < count:
        size = min(count - start, sizes[-1] if sizes else free)
        yield start, size, next((b for b in sizes if b >= size), size) if sizes else size
        start += size


def _rec_batches(
    order: Sequence[int], widths: Sequence[int], gears: Gears | None
) -> Iterator[tuple[list[int], int, int]]:
    """(crops, canvas width, padded batch) for crops in `order`, widest first. Without gears each
    line has its own width: on a CPU a batch gains nothing and padding costs."""
    if gears is None:
        for i in order:
            yield [i], max(16, -(-widths[i] // 8) * 8), 1
        return
    canvases = sorted({g["W"] for g in gears})
    waiting = {w: [] for w in canvases}  # type: dict[int, list[int]]
    for i in order:
        waiting[next((w for w in canvases if w >= widths[i]), canvases[-1])].append(i)
    for canvas, lines in waiting.items():
        sizes = sorted(g["B"] for g in gears if g["W"] == canvas)
        for start in range(0, len(lines), sizes[-1]):
            group = lines[start : start + sizes[-1]]
            yield group, canvas, next(b for b in sizes if b >= len(group))


def _padded(batch: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    if len(batch) == size:
        return batch
    return np.concatenate([batch, np.zeros((size - len(batch), *batch.shape[1:]), batch.dtype)])
