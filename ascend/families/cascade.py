"""The cascade of PP-OCR: detection, direction and recognition graphs of one engine, page to lines.

What it knows of an engine is its gears: none (a CPU runs any shape, so every picture and
line gets its exact size) or a list (an NPU: letterboxed canvases, line widths in batches).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine
from ascend.families.cascade_settings import CascadeSettings
from ascend.families.finder import Finder
from ascend.families.line_reader import LineReader, go_on, half_turn
from host_pipeline.detect import Detection
from host_pipeline.page import Page
from host_pipeline.recognize import Reading, cut
from host_pipeline.result import Line, Notice
from profiling.spans import span

Crop = NDArray[np.uint8]

_LIMITS = (
    "this model has no letters for Hangul, Cyrillic, Arabic, Hebrew, Thai or Devanagari and does "
    "not read handwriting well: give HunyuanOCR's weights with --model for those"
)


@dataclass(frozen=True, slots=True)
class Sight:
    """What the cascade saw of a page: the page (turned upright), its lines in no order, notices,
    the detections without a trustworthy reading, and by how much the page was turned."""

    page: Page
    lines: tuple[Line, ...]
    unread: tuple[str, ...]
    notices: tuple[Notice, ...]
    turned: int


class Cascade:
    """Finds and reads the lines of a page with the graphs `det`, `cls` and `rec` of an engine.
    `characters` maps a class of `rec` to its character. Borrows the engine."""

    def __init__(
        self, engine: Engine, characters: Sequence[str], settings: CascadeSettings
    ) -> None:
        self.settings = settings
        self._finder = Finder(engine, settings)
        self._reader = LineReader(engine, characters, settings)

    def close(self) -> None:
        """End the threads that read lines; idempotent."""
        self._reader.close()

    def see(self, page: Page, check: Callable[[], None] = go_on) -> Sight:
        """All lines of `page`. `check` is called between graphs and may raise to stop."""
        notices: list[Notice] = []
        found = self._finder.find(page.pixels)
        if not len(found):
            stretched = _stretched(page.pixels)
            if stretched is not None:
                page = replace(page, pixels=stretched)
                found = self._finder.find(stretched)
                if len(found):
                    notices.append(
                        Notice("low_contrast", "the page was read with its contrast stretched")
                    )
        check()
        page, found, vertical, turned = self._upright(page, found)
        if turned:
            notices.append(
                Notice("page_turned", f"the page was turned by {turned} degrees clockwise")
            )
        check()
        with span("crop"):
            crops = [self._level_crop(page.pixels, quad, vertical) for quad in found.crops]
            crops = self._reader.upright(crops)
        readings = self._reader.read(crops, check)
        readings = self._second_look(page.pixels, found, readings, vertical, check)
        lines, unread = self._sort_out(found, readings, vertical)
        if len(unread) >= 2 and len(unread) >= 0.2 * len(found):
            notices.append(_unread_notice(len(unread), len(found)))
        elif lines and 2 * sum(map(self._is_doubtful, lines)) >= len(lines):
            notices.append(
                Notice("doubtful_text", f"most lines were read without confidence; {_LIMITS}")
            )
        return Sight(page, tuple(lines), tuple(unread), tuple(notices), turned)

    def _upright(self, page: Page, found: Detection) -> tuple[Page, Detection, bool, int]:
        """The page turned so that its text is upright, the detections with it, whether its text
        runs from top to bottom, and the turn in degrees clockwise."""
        if not len(found):
            return page, found, False, 0
        tall = self._tall(found)
        vertical, turn = False, 0
        if tall.mean() > 0.5:
            vertical, turn = self._read_tall(page.pixels, found.take(np.flatnonzero(tall)))
        turned_page = page.turned(turn) if turn else page
        # The graph finds level text best, so a page on its side is looked at again.
        turned = self._finder.find(turned_page.pixels) if turn else found
        if not vertical and self._upside_down(turned_page.pixels, turned):
            turn = (turn + 180) % 360
            turned, turned_page = _half_turned(turned, turned_page), page.turned(turn)
        return turned_page, turned, vertical, turn

    def _read_tall(self, pixels: Crop, found: Detection) -> tuple[bool, int]:
        """Of a page of tall boxes: is it vertical text, and by how much must it be turned?

        Recognition reads Chinese characters lying on their back as well as upright ones, so a
        good score of the crop alone does not tell; a single upright character cell does."""
        sample = _largest(found, 5)
        crops = [cut(pixels, quad) for quad in sample.crops]
        left = self._reader.read([np.ascontiguousarray(np.rot90(c)) for c in crops])
        right = self._reader.read([np.ascontiguousarray(np.rot90(c, -1)) for c in crops])
        score_left, score_right = (float(np.mean([r.score for r in s])) for s in (left, right))
        if score_right > score_left:
            return False, 90
        cells = [cell for c in crops for cell in _square_cells(c, 3)]
        upright = float(np.mean([r.score for r in self._reader.read(cells)]))
        lying = [np.ascontiguousarray(np.rot90(cell)) for cell in cells]
        turned = float(np.mean([r.score for r in self._reader.read(lying)]))
        vertical = any(map(_is_cjk, "".join(r.text for r in left))) and upright >= turned
        return vertical, 0 if vertical else 270

    def _upside_down(self, pixels: Crop, found: Detection) -> bool:
        """Do most lines stand on their head? The direction graph votes, recognition decides."""
        sample = _largest(found, 16)
        crops = [cut(pixels, quad) for quad in sample.crops]
        crops = [c for c in crops if c.shape[1] >= 2 * c.shape[0]]
        if not crops:
            return False
        if (self._reader.directions(crops) > 0.5).mean() <= 0.5:
            return False
        longest = sorted(crops, key=lambda c: -c.shape[1])[:5]
        as_is = np.mean([r.score for r in self._reader.read(longest)])
        over = np.mean([r.score for r in self._reader.read([half_turn(c) for c in longest])])
        return bool(over > as_is)

    def _level_crop(self, pixels: Crop, quad: NDArray[np.float32], vertical: bool) -> Crop:
        crop = cut(pixels, quad)
        if crop.shape[0] >= self.settings.tall * crop.shape[1]:
            crop = np.ascontiguousarray(np.rot90(crop))
        return crop

    def _second_look(
        self,
        pixels: Crop,
        found: Detection,
        readings: list[Reading],
        vertical: bool,
        check: Callable[[], None],
    ) -> list[Reading]:
        """Doubtful lines read again from a tighter crop; of the two, the surer reading."""
        doubtful = [i for i, r in enumerate(readings) if r.score < self.settings.doubtful]
        crops = [self._level_crop(pixels, q, vertical) for q in found.quads[doubtful]]
        again = self._reader.read(self._reader.upright(crops), check)
        better = {i: r for i, r in zip(doubtful, again, strict=True) if r.score > readings[i].score}
        return [better.get(i, r) for i, r in enumerate(readings)]

    def _is_doubtful(self, line: Line) -> bool:
        """A low score, or far fewer characters than the line has room for: letters that the model
        does not know come out as nothing."""
        assert line.quad is not None and line.score is not None
        sides = np.linalg.norm(np.diff(np.asarray((*line.quad, line.quad[0])), axis=0), axis=1)
        room = float(sides[:2].max() / max(sides[:2].min(), 1.0))
        return line.score < self.settings.doubtful or (room > 3 and len(line.text) < 0.25 * room)

    def _tall(self, found: Detection) -> NDArray[np.bool_]:
        """Which quads (n,) are lines on their side."""
        width, height = found.sides.T
        return np.asarray(height >= self.settings.tall * width)

    def _sort_out(
        self, found: Detection, readings: list[Reading], vertical: bool
    ) -> tuple[list[Line], list[str]]:
        """Trusted readings as lines, and the text of the others (perhaps empty)."""
        lines, unread = [], []
        for quad, tall, reading in zip(found.quads, self._tall(found), readings, strict=True):
            text = reading.text.strip()
            if not text or reading.score < self.settings.min_score or _is_speck(text, reading):
                unread.append(text)
                continue
            corners = tuple((round(float(x), 1), round(float(y), 1)) for x, y in quad)
            upright = vertical and bool(tall)
            lines.append(Line(text, corners, round(reading.score, 4), vertical=upright))  # type: ignore[arg-type]
        return lines, unread


def _half_turned(found: Detection, page: Page) -> Detection:
    """The detections after `page` was turned upside down."""
    edge = np.array([page.width, page.height], np.float32)
    # The corner opposite to the top-left one becomes the top-left one.
    quads, crops = (np.roll(edge - q, 2, axis=1) for q in (found.quads, found.crops))
    return Detection(quads, crops, found.scores)


def _largest(found: Detection, count: int) -> Detection:
    """The detections with the longest sides."""
    return found.take(np.argsort(-found.sides.max(1))[:count])


def _square_cells(column: Crop, count: int) -> list[Crop]:
    """Up to `count` square cells from the middle of a tall crop, one character each."""
    side = column.shape[1]
    starts = range(0, max(1, column.shape[0] - side + 1), side)
    middle = list(starts)[max(0, len(starts) // 2 - 1) :][:count]
    return [np.ascontiguousarray(column[y : y + side]) for y in middle]


def _is_cjk(char: str) -> bool:
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff"


def _is_speck(text: str, reading: Reading) -> bool:
    """One or two Latin letters or signs with a middling score: a stain read as text."""
    return len(text) <= 2 and reading.score < 0.7 and not any(map(_is_cjk, text))


def _stretched(pixels: Crop) -> Crop | None:
    """The page with its 1st..99th percentile of brightness spread over 0..255, None where there
    is nothing to spread (a blank page) or nothing to gain (full range already)."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    low, high = np.percentile(grey, (1, 99))
    if grey.max() - grey.min() < 6 or high - low > 128:
        return None
    if high - low < 4:
        low, high = float(grey.min()), float(grey.max())
    scaled = (pixels.astype(np.float32) - low) * (255.0 / max(high - low, 1.0))
    return np.asarray(np.clip(scaled, 0, 255), np.uint8)


def _unread_notice(unread: int, found: int) -> Notice:
    return Notice(
        "unreadable_text",
        f"{unread} of {found} text regions could not be read with confidence; {_LIMITS}",
    )
