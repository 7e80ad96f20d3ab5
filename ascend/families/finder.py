"""Where the text of a page is: the detection graph on one canvas, on a closer one, or on tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine
from ascend.families.cascade_settings import CascadeSettings
from host_pipeline.detect import MULTIPLE, Detection, det_input, quads_from_map
from host_pipeline.letterbox import letterbox
from host_pipeline.tile import merge_across, tiles
from profiling.spans import span

Pixels = NDArray[np.uint8]


class Finder:
    """Finds lines with the graph `det` of an engine, which it borrows."""

    def __init__(self, engine: Engine, settings: CascadeSettings) -> None:
        self._engine, self._settings = engine, settings

    def find(self, pixels: Pixels) -> Detection:
        """Detections on the whole page or, when it would shrink too far, on tiles of it."""
        height, width = pixels.shape[:2]
        limit = int(self._settings.max_side / self._settings.min_scale)
        short = min(height, width)
        side = min(limit, max(2 * short, self._settings.max_side))
        if max(height, width) <= side or (
            max(height, width) <= limit and max(height, width) < 8 * short
        ):
            return self._find_in_window(pixels)
        windows = tiles(height, width, side, self._settings.overlap)
        found = []
        for t in windows:
            part = self._find_in_window(np.ascontiguousarray(pixels[t.y0 : t.y1, t.x0 : t.x1]))
            shift = np.array([t.x0, t.y0], np.float32)
            found.append(Detection(part.quads + shift, part.crops + shift, part.scores))
        groups = merge_across([f.quads for f in found], windows, height, width)
        merged = [_united([found[w].take([b]) for w, b in group]) for group in groups]
        if not merged:
            return found[0].take([])
        return Detection(
            np.concatenate([m.quads for m in merged]),
            np.concatenate([m.crops for m in merged]),
            np.concatenate([m.scores for m in merged]),
        )

    def _find_in_window(self, pixels: Pixels) -> Detection:
        s = self._settings
        height, width = pixels.shape[:2]
        enlarge = min(s.max_enlarge, max(1.0, s.min_side / min(height, width)))
        scale = min(enlarge, s.max_side / max(height, width))
        found = self._find_at(pixels, scale)
        closer = min(1.0, s.small_print_side / max(height, width))
        if closer > scale and len(found) >= s.small_print_lines:
            if np.median(found.sides.min(1)) * scale < s.small_print:
                found = self._find_at(pixels, closer)
        return found

    def _find_at(self, pixels: Pixels, scale: float) -> Detection:
        height, width = pixels.shape[:2]
        with span("letterbox"):
            canvas, factors = self._canvas(pixels, scale)
            image = det_input(canvas)
        with span("det"):
            probability = self._engine.run("det", {"image": image})["map"].numpy()[0, 0]
        with span("boxes"):
            found = quads_from_map(probability, self._settings.det, factors)
            edge = np.array([width, height], np.float32)
            np.clip(found.quads, 0, edge, out=found.quads)
            np.clip(found.crops, 0, edge, out=found.crops)
            return found.take(np.flatnonzero(found.sides.min(1) > 3))

    def _canvas(self, pixels: Pixels, scale: float) -> tuple[Pixels, tuple[float, float]]:
        """The picture at `scale` on a canvas the det graph takes, and its exact (x, y) scale."""
        height, width = pixels.shape[:2]
        gears = self._engine.gears("det")
        if gears is None:
            h, w = (max(MULTIPLE, round(v * scale / MULTIPLE) * MULTIPLE) for v in (height, width))
            shrink = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
            return np.asarray(cv2.resize(pixels, (w, h), interpolation=shrink), np.uint8), (
                w / width,
                h / height,
            )
        wanted = (height * scale, width * scale)
        gear = _canvas_gear(gears, *wanted)
        boxed = letterbox(pixels, gear["H"], gear["W"], max_scale=scale, resample="cv2-linear")
        return boxed.pixels, boxed.scale


def _united(parts: Sequence[Detection]) -> Detection:
    """One detection of several pieces: the upright rectangle around them."""
    if len(parts) == 1:
        return parts[0]

    def around(quads: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        points = np.concatenate(quads).reshape(-1, 2)
        (x0, y0), (x1, y1) = points.min(0), points.max(0)
        return np.array([[[x0, y0], [x1, y0], [x1, y1], [x0, y1]]], np.float32)

    score = np.min([p.scores for p in parts], axis=0)
    return Detection(around([p.quads for p in parts]), around([p.crops for p in parts]), score)


def _canvas_gear(
    gears: Sequence[Mapping[str, int]], height: float, width: float
) -> Mapping[str, int]:
    """The canvas that keeps the picture largest, the smaller one of equals."""

    def fit(gear: Mapping[str, int]) -> float:
        return min(1.0, gear["H"] / height, gear["W"] / width)

    return max(gears, key=lambda g: (round(fit(g), 3), -g["H"] * g["W"]))
