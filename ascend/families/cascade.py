"""The cascade of PP-OCR: detection, direction and recognition graphs of one engine, page to lines.

What it knows of an engine is its gears: none (a CPU runs any shape, so every picture and
line gets its exact size) or a list (an NPU: letterboxed canvases, line widths in batches).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine
from host_pipeline.detect import MULTIPLE, DetSettings, Detection, det_input, quads_from_map
from host_pipeline.letterbox import letterbox
from host_pipeline.page import Page
from host_pipeline.recognize import (
    CLS_WIDTH,
    REC_HEIGHT,
    Reading,
    ctc_decode,
    cut,
    rec_input,
    rec_width,
    split_at_gaps,
)
from host_pipeline.result import Line, Notice
from host_pipeline.tile import merge_across, tiles
from profiling.spans import span

Crop = NDArray[np.uint8]


_LIMITS = (
    "this model has no letters for Hangul, Cyrillic, Arabic, Hebrew, Thai or Devanagari and does not "
    "read handwriting well: give HunyuanOCR's weights with --model for those"
)


def _go_on() -> None:
    """The check of a page that nobody stops."""


@dataclass(frozen=True, slots=True)
class CascadeSettings:
    """Sides and scales in page pixels. A picture is enlarged until its short side is `min_side`,
    by no more than `max_enlarge`, and shrunk until its long side is `max_side`; a page that would
    shrink below `min_scale` is read in overlapping tiles. A page of `small_print_lines` lines whose
    median height on the canvas is under `small_print` is looked at again, shrunk to no less than
    `small_print_side`. `min_score` is the mean character
    probability under which a reading is not reported as a line; a reading under `doubtful` is tried
    again on a tighter crop."""

    det: DetSettings = DetSettings(unclip=1.3, crop_unclip=1.6)
    min_side: int = 736
    max_side: int = 1280
    max_enlarge: float = 2.0
    small_print: float = 14.0
    small_print_lines: int = 20
    small_print_side: int = 2000
    min_scale: float = 0.4
    overlap: int = 160
    min_score: float = 0.5
    doubtful: float = 0.9
    turned_score: float = 0.9
    max_rec_width: int = 1920
    tall: float = 1.5


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
        self.engine, self.characters, self.settings = engine, characters, settings
        self._pool = ThreadPoolExecutor(engine.parallel, "lines") if engine.parallel > 1 else None

    def close(self) -> None:
        """End the threads that read lines; idempotent."""
        if self._pool is not None:
            self._pool.shutdown()

    def see(self, page: Page, check: Callable[[], None] = _go_on) -> Sight:
        """All lines of `page`. `check` is called between graphs and may raise to stop."""
        notices: list[Notice] = []
        found = self._detect(page.pixels)
        if not len(found):
            stretched = _stretched(page.pixels)
            if stretched is not None:
                page = replace(page, pixels=stretched)
                found = self._detect(stretched)
                if len(found):
                    notices.append(Notice("low_contrast", "the page was read with its contrast stretched"))
        check()
        page, found, vertical, turned = self._upright(page, found)
        if turned:
            notices.append(Notice("page_turned", f"the page was turned by {turned} degrees clockwise"))
        check()
        with span("crop"):
            crops = [self._level_crop(page.pixels, quad, vertical) for quad in found.crops]
            crops = self._turn_lines(crops)
        readings = self._read(crops, check)
        readings = self._second_look(page.pixels, found, readings, vertical, check)
        lines, unread = self._sort_out(page, found, readings, vertical)
        if len(unread) >= 2 and len(unread) >= 0.2 * len(found):
            notices.append(_unread_notice(len(unread), len(found)))
        elif lines and 2 * sum(map(self._is_doubtful, lines)) >= len(lines):
            notices.append(Notice("doubtful_text", f"most lines were read without confidence; {_LIMITS}"))
        return Sight(page, tuple(lines), tuple(unread), tuple(notices), turned)

    # -- detection

    def _detect(self, pixels: Crop) -> Detection:
        """Detections on the whole page or, when it would shrink too far, on tiles of it."""
        height, width = pixels.shape[:2]
        limit = int(self.settings.max_side / self.settings.min_scale)
        short = min(height, width)
        side = min(limit, max(2 * short, self.settings.max_side))
        if max(height, width) <= side or max(height, width) <= limit and max(height, width) < 8 * short:
            return self._detect_window(pixels)
        windows = tiles(height, width, side, self.settings.overlap)
        found = []
        for t in windows:
            part = self._detect_window(np.ascontiguousarray(pixels[t.y0 : t.y1, t.x0 : t.x1]))
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

    def _detect_window(self, pixels: Crop) -> Detection:
        s = self.settings
        height, width = pixels.shape[:2]
        enlarge = min(s.max_enlarge, max(1.0, s.min_side / min(height, width)))
        scale = min(enlarge, s.max_side / max(height, width))
        found = self._detect_at(pixels, scale)
        closer = min(1.0, s.small_print_side / max(height, width))
        if closer > scale and len(found) >= s.small_print_lines:
            sides = np.linalg.norm(found.quads[:, [1, 3]] - found.quads[:, :1], axis=2)
            if np.median(sides.min(1)) * scale < s.small_print:
                found = self._detect_at(pixels, closer)
        return found

    def _detect_at(self, pixels: Crop, scale: float) -> Detection:
        height, width = pixels.shape[:2]
        with span("letterbox"):
            canvas, factors = self._canvas(pixels, scale)
            image = det_input(canvas)
        with span("det"):
            probability = self.engine.run("det", {"image": image})["map"].numpy()[0, 0]
        with span("boxes"):
            found = quads_from_map(probability, self.settings.det, factors)
            edge = np.array([width, height], np.float32)
            np.clip(found.quads, 0, edge, out=found.quads)
            np.clip(found.crops, 0, edge, out=found.crops)
            sides = np.linalg.norm(found.quads[:, [1, 3]] - found.quads[:, :1], axis=2)
            return found.take(np.flatnonzero(sides.min(1) > 3))

    def _canvas(self, pixels: Crop, scale: float) -> tuple[Crop, tuple[float, float]]:
        """The picture at `scale` on a canvas the det graph takes, and its exact (x, y) scale."""
        height, width = pixels.shape[:2]
        gears = self.engine.gears("det")
        if gears is None:
            h, w = (max(MULTIPLE, round(v * scale / MULTIPLE) * MULTIPLE) for v in (height, width))
            shrink = cv2.INTER_AREA if scale < 0.5 else cv2.INTER_LINEAR
            return np.asarray(cv2.resize(pixels, (w, h), interpolation=shrink), np.uint8), (
                w / width,
                h / height,
            )
        wanted = (height * scale, width * scale)
        gear = _canvas_gear(gears, *wanted)
        boxed = letterbox(
            pixels, gear["H"], gear["W"], max_scale=scale, resample="cv2-linear"
        )
        return boxed.pixels, boxed.scale

    # -- direction

    def _upright(self, page: Page, found: Detection) -> tuple[Page, Detection, bool, int]:
        """The page turned so that its text is upright, the detections with it, whether its text
        runs from top to bottom, and the turn in degrees clockwise."""
        if not len(found):
            return page, found, False, 0
        tall = np.array([_is_tall(q, self.settings.tall) for q in found.quads])
        vertical, turn = False, 0
        if tall.mean() > 0.5:
            vertical, turn = self._read_tall(page.pixels, found.take(np.flatnonzero(tall)))
        turned_page = page.turned(turn) if turn else page
        # The graph finds level text best, so a page on its side is looked at again.
        turned = self._detect(turned_page.pixels) if turn else found
        if not vertical and self._upside_down(turned_page.pixels, turned):
            turn = (turn + 180) % 360
            turned, turned_page = _half_turned(turned, turned_page), page.turned(turn) if turn else page
        return turned_page, turned, vertical, turn

    def _read_tall(self, pixels: Crop, found: Detection) -> tuple[bool, int]:
        """Of a page of tall boxes: is it vertical text, and by how much must it be turned?

        Recognition reads Chinese characters lying on their back as well as upright ones, so a
        good score of the crop alone does not tell; a single upright character cell does."""
        sample = _largest(found, 5)
        crops = [cut(pixels, quad) for quad in sample.crops]
        left = self._read([np.ascontiguousarray(np.rot90(c)) for c in crops])
        right = self._read([np.ascontiguousarray(np.rot90(c, -1)) for c in crops])
        score_left, score_right = (float(np.mean([r.score for r in s])) for s in (left, right))
        if score_right > score_left:
            return False, 90
        cells = [cell for c in crops for cell in _square_cells(c, 3)]
        upright = float(np.mean([r.score for r in self._read(cells)]))
        lying = [np.ascontiguousarray(np.rot90(cell)) for cell in cells]
        turned = float(np.mean([r.score for r in self._read(lying)]))
        vertical = any(map(_is_cjk, "".join(r.text for r in left))) and upright >= turned
        return vertical, 0 if vertical else 270

    def _upside_down(self, pixels: Crop, found: Detection) -> bool:
        """Do most lines stand on their head? The direction graph votes, recognition decides."""
        sample = _largest(found, 16)
        crops = [cut(pixels, quad) for quad in sample.crops]
        crops = [c for c in crops if c.shape[1] >= 2 * c.shape[0]]
        if not crops:
            return False
        if (self._directions(crops) > 0.5).mean() <= 0.5:
            return False
        longest = sorted(crops, key=lambda c: -c.shape[1])[:5]
        as_is = np.mean([r.score for r in self._read(longest)])
        over = np.mean([r.score for r in self._read([_half_turn(c) for c in longest])])
        return bool(over > as_is)

    def _turn_lines(self, crops: list[Crop]) -> list[Crop]:
        """Single lines that stand on their head, turned."""
        if not crops:
            return crops
        flags = self._directions(crops) > self.settings.turned_score
        return [_half_turn(c) if flag else c for c, flag in zip(crops, flags, strict=True)]

    def _directions(self, crops: Sequence[Crop]) -> NDArray[np.float32]:
        """Probability of standing on its head for each crop (n,), by the graph `cls`."""
        with span("cls"):
            batches = _batches(len(crops), self.engine.gears("cls"), 8)
            out: list[float] = []
            for start, size, padded in batches:
                image = rec_input(crops[start : start + size], CLS_WIDTH)
                image = _padded(image, padded)
                out.extend(self.engine.run("cls", {"image": image})["probs"].numpy()[:size, 1])
            return np.asarray(out, np.float32)

    def _level_crop(self, pixels: Crop, quad: NDArray[np.float32], vertical: bool) -> Crop:
        crop = cut(pixels, quad)
        if crop.shape[0] >= self.settings.tall * crop.shape[1]:
            crop = np.ascontiguousarray(np.rot90(crop))
        return crop

    # -- recognition

    def _read(self, crops: Sequence[Crop], check: Callable[[], None] = _go_on) -> list[Reading]:
        """The reading of each crop; crops wider than the widest canvas are read in pieces."""
        widest = self.settings.max_rec_width / REC_HEIGHT
        pieces = [(i, span_) for i, c in enumerate(crops) for span_ in split_at_gaps(c, widest)]
        parts = [crops[i][:, a:b] for i, (a, b) in pieces]
        with span("rec"):
            readings = self._read_pieces(parts, check)
        joined: list[list[tuple[Reading, tuple[int, int]]]] = [[] for _ in crops]
        for (i, extent), reading in zip(pieces, readings, strict=True):
            joined[i].append((reading, extent))
        return [_join(j, crops[i].shape[1]) for i, j in enumerate(joined)]

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
        again = self._read(self._turn_lines(crops), check)
        better = {i: r for i, r in zip(doubtful, again, strict=True) if r.score > readings[i].score}
        return [better.get(i, r) for i, r in enumerate(readings)]

    def _read_pieces(self, parts: Sequence[Crop], check: Callable[[], None]) -> list[Reading]:
        widths = [rec_width(p) for p in parts]
        # Widest first: threads that share the lines then end together.
        order = sorted(range(len(parts)), key=lambda i: -widths[i])
        out: list[Reading | None] = [None] * len(parts)

        def read(batch: tuple[list[int], int, int]) -> None:
            group, canvas, padded = batch
            check()
            image = _padded(rec_input([parts[i] for i in group], canvas), padded)
            answer = self.engine.run("rec", {"image": image})
            ids, scores = answer["ids"].numpy(), answer["scores"].numpy()
            for row, i in enumerate(group):
                used = min(1.0, widths[i] / canvas)
                out[i] = ctc_decode(ids[row], scores[row], self.characters, used)

        batches = list(_rec_batches(order, widths, self.engine.gears("rec")))
        for _ in self._pool.map(read, batches) if self._pool else map(read, batches):
            pass
        return [r for r in out if r is not None]

    def _is_doubtful(self, line: Line) -> bool:
        """A low score, or far fewer characters than the line has room for: letters that the model
        does not know come out as nothing."""
        assert line.quad is not None and line.score is not None
        sides = np.linalg.norm(np.diff(np.asarray((*line.quad, line.quad[0])), axis=0), axis=1)
        room = float(sides[:2].max() / max(sides[:2].min(), 1.0))
        return line.score < self.settings.doubtful or (room > 3 and len(line.text) < 0.25 * room)

    def _sort_out(
        self, page: Page, found: Detection, readings: list[Reading], vertical: bool
    ) -> tuple[list[Line], list[str]]:
        """Trusted readings as lines; the text of the others (perhaps empty), page pixels kept."""
        lines, unread = [], []
        for quad, reading in zip(found.quads, readings, strict=True):
            text = reading.text.strip()
            if not text or reading.score < self.settings.min_score or _is_speck(text, reading):
                unread.append(text)
                continue
            corners = tuple((round(float(x), 1), round(float(y), 1)) for x, y in quad)
            upright = vertical and _is_tall(quad, self.settings.tall)
            lines.append(Line(text, corners, round(reading.score, 4), vertical=upright))  # type: ignore[arg-type]
        return lines, unread


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


def _is_tall(quad: NDArray[np.float32], ratio: float) -> bool:
    width, height = np.linalg.norm(quad[1] - quad[0]), np.linalg.norm(quad[3] - quad[0])
    return bool(height >= ratio * width)


def _half_turned(found: Detection, page: Page) -> Detection:
    """The detections after `page` was turned upside down."""
    edge = np.array([page.width, page.height], np.float32)
    # The corner opposite to the top-left one becomes the top-left one.
    quads, crops = (np.roll(edge - q, 2, axis=1) for q in (found.quads, found.crops))
    return Detection(quads, crops, found.scores)


def _largest(found: Detection, count: int) -> Detection:
    """The detections with the longest sides."""
    sides = np.linalg.norm(found.quads[:, [1, 3]] - found.quads[:, :1], axis=2).max(1)
    return found.take(np.argsort(-sides)[:count])


def _square_cells(column: Crop, count: int) -> list[Crop]:
    """Up to `count` square cells from the middle of a tall crop, one character each."""
    side = column.shape[1]
    starts = range(0, max(1, column.shape[0] - side + 1), side)
    middle = list(starts)[max(0, len(starts) // 2 - 1) :][:count]
    return [np.ascontiguousarray(column[y : y + side]) for y in middle]


def _half_turn(crop: Crop) -> Crop:
    return np.ascontiguousarray(crop[::-1, ::-1])


def _is_cjk(char: str) -> bool:
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff"


def _is_speck(text: str, reading: Reading) -> bool:
    """One or two Latin letters or signs with a middling score: a stain read as text."""
    return len(text) <= 2 and reading.score < 0.7 and not any(map(_is_cjk, text))


def _join(parts: list[tuple[Reading, tuple[int, int]]], width: int) -> Reading:
    if len(parts) == 1:
        return parts[0][0]
    chars = [s for r, _ in parts for s in r.char_scores]
    columns = [(a + c * (b - a)) / width for r, (a, b) in parts for c in r.columns]
    score = float(np.mean(chars)) if chars else 0.0
    return Reading("".join(r.text for r, _ in parts), score, tuple(columns), tuple(chars))


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
    return np.clip(scaled, 0, 255).astype(np.uint8)


def _unread_notice(unread: int, found: int) -> Notice:
    return Notice(
        "unreadable_text",
        f"{unread} of {found} text regions could not be read with confidence; {_LIMITS}",
    )


def _canvas_gear(gears: Sequence[Any], height: float, width: float) -> Any:
    """The canvas that keeps the picture largest, the smaller one of equals."""
    def fit(gear: Any) -> float:
        return min(1.0, gear["H"] / height, gear["W"] / width)

    return max(gears, key=lambda g: (round(fit(g), 3), -g["H"] * g["W"]))


def _batches(
    count: int, gears: Sequence[Any] | None, free: int
) -> Iterator[tuple[int, int, int]]:
    """(start, size, padded size) that cover `count` items, in sizes the gears allow."""
    sizes = sorted(g["B"] for g in gears) if gears else None
    start = 0
    while start < count:
        size = min(count - start, sizes[-1] if sizes else free)
        yield start, size, next((b for b in sizes if b >= size), size) if sizes else size
        start += size


def _rec_batches(
    order: Sequence[int], widths: Sequence[int], gears: Sequence[Any] | None
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
