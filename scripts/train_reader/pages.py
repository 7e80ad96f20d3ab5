"""Draws pages of the reader's world: glyphs from a cache, then paper, ink and the camera.

A page is a window of a canvas. While training, the window may be a small piece of a large canvas
(the blank rest is left out); everywhere else the window is the whole canvas. It knows nothing of
tokens or torch. Pixels are (H, W, 3) uint8 RGB.
"""

import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from . import world

_BAR_GREY = 114  # the product's letterbox fill
CELL = 32  # side of what becomes one image token
_LINE_PITCH = CELL  # so two lines never share a row of cells


class Glyph(NamedTuple):
    """One drawn character: its coverage, its place against the pen, and the pen's advance."""

    coverage: NDArray[np.uint8] | None
    left: int
    top: int
    advance: int


class Mark(NamedTuple):
    """Where a character stands in the window, in pixels."""

    character: str
    center_x: float
    x0: int
    x1: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its text, its ink box (x0, y0, x1, y1) in window pixels, and its characters."""

    text: str
    box: tuple[int, int, int, int]
    center_y: float
    marks: tuple[Mark, ...]
    key: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Style:
    """What may be drawn: font folder, file names, sizes; `degrade` is the share of bad pages."""

    fonts: Path
    latin: tuple[str, ...] = world.LATIN_FONTS
    chinese: str = world.CHINESE_FONT
    sizes: tuple[int, ...] = world.SIZES
    degrade: float = 0.35


@dataclass(frozen=True, slots=True)
class Layout:
    """How much to draw: window (H, W) in pixels, lines, and the share of labelled lines."""

    window: tuple[int, int]
    min_lines: int = 1
    max_lines: int = 3
    labelled: float = 0.5
    fill: float = 0.3  # least width of a free line, as a share of the room
    widest: int = 10_000  # most pixels of a line
    bars: float = 0.0  # share of pages that leave letterbox bars on the right or below
    page: tuple[int, int] | None = None  # the page's size in the window's corner, grey beyond
    keep: int = 0  # cells to show: the page's or the inked, and random others; 0 shows all


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """A page with its truth.

    `pixels` (H, W, 3); with `Layout.keep`, the kept cells one below the other (K * 32, 32, 3).
    `cells` (K, 2) are the rows and columns of the shown cells, in reading order.
    """

    pixels: NDArray[np.uint8]
    lines: tuple[Line, ...]
    fields: dict[str, str] = field(default_factory=dict)
    cells: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))


@lru_cache(maxsize=64)
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=32768)
def draw_glyph(path: str, size: int, character: str) -> Glyph:
    """One character's coverage, cropped to its ink; None for a blank."""
    font = _font(path, size)
    image = Image.new("L", (size * 3, size * 3))
    ImageDraw.Draw(image).text((size, 2 * size), character, font=font, fill=255, anchor="ls")
    pixels = np.asarray(image)
    advance = max(1, round(font.getlength(character)))
    ys, xs = np.nonzero(pixels > 40)
    if len(ys) == 0:
        return Glyph(None, 0, 0, advance)
    top, left = int(ys.min()), int(xs.min())
    crop = pixels[top : ys.max() + 1, left : xs.max() + 1].copy()
    return Glyph(crop, left - size, top - 2 * size, advance)


class _Pen:
    """Writes single lines into one page's coverage mask."""

    def __init__(self, window: tuple[int, int], style: Style, rng: random.Random) -> None:
        self.mask = np.zeros(window, np.uint8)
        self._style = style
        self._rng = rng
        self._latin = rng.choice(style.latin)
        self._size = rng.choice(style.sizes)
        self._chinese_digits = False

    def change(self) -> None:
        """Another font and size for the next line, half of the time."""
        if self._rng.random() < 0.5:
            self._latin = self._rng.choice(self._style.latin)
            self._size = self._rng.choice(self._style.sizes)
        self._chinese_digits = self._rng.random() < 0.4

    def _glyph(self, character: str, wide: bool) -> Glyph:
        chinese = ord(character) > 0x2000 or (wide and self._chinese_digits)
        name = self._style.chinese if chinese else self._latin
        return draw_glyph(str(self._style.fonts / name), self._size, character)

    def width(self, text: str) -> int:
        """The pen's travel over `text`, pixels."""
        wide = any(ord(c) > 0x2000 for c in text)
        return sum(self._glyph(c, wide).advance for c in text)

    def write(self, wording: world.Wording, x: int, y: int) -> Line | None:
        """Draws the line whose pitch begins at row y; None if no ink fell into the window."""
        base = y + (_LINE_PITCH + self._size) // 2 - self._size // 6
        marks: list[Mark] = []
        boxes: list[tuple[int, int, int, int]] = []
        wide = any(ord(c) > 0x2000 for c in wording.text)
        for character in wording.text:
            glyph = self._glyph(character, wide)
            x0, x1 = x, x + glyph.advance
            if glyph.coverage is not None:
                box = self._stamp(glyph, x, base)
                boxes.append(box)
                x0, x1 = box[0], box[2]
            marks.append(Mark(character, x + glyph.advance / 2, x0, x1))
            x += glyph.advance
        if not boxes:
            return None
        edges = np.array(boxes)
        low, high = edges.min(axis=0), edges.max(axis=0)
        box = (int(low[0]), int(low[1]), int(high[2]), int(high[3]))
        center = base - 0.35 * self._size
        return Line(wording.text, box, center, tuple(marks), wording.key, wording.value)

    def _stamp(self, glyph: Glyph, x: int, base: int) -> tuple[int, int, int, int]:
        assert glyph.coverage is not None
        height, width = glyph.coverage.shape
        left, top = x + glyph.left, base + glyph.top
        x0, y0 = max(0, left), max(0, top)
        x1, y1 = min(self.mask.shape[1], left + width), min(self.mask.shape[0], top + height)
        target = self.mask[y0:y1, x0:x1]
        piece = glyph.coverage[y0 - top : y1 - top, x0 - left : x1 - left]
        np.maximum(target, piece, out=target)
        return x0, y0, x1, y1


def _word_line(
    rng: random.Random, layout: Layout, keys: list[str], room: int, pen: _Pen
) -> world.Wording | None:
    """A wording that fits into `room` pixels, or None."""
    if keys and rng.random() < layout.labelled:
        wording = world.word_labelled(rng, keys[-1])
        if pen.width(wording.text) <= room:
            keys.pop()
            return wording
    want, best = room * rng.uniform(layout.fill, 1.0), None
    for words in range(1, 12):
        wording = world.word_free(rng, words)
        width = pen.width(wording.text)
        if width <= room:
            best = wording
            if width >= want:
                break
    return best


def _offsets(rng: random.Random, lines: int, height: int) -> list[int]:
    """Top rows of `lines` pitches spread at random over the window."""
    slack = height - lines * _LINE_PITCH
    cuts = sorted(rng.randint(0, slack) for _ in range(lines))
    if rng.random() < 0.3:  # set solid: equal gaps, as on forms
        start, gap = rng.randint(0, slack), 0
        if lines > 1:
            gap = rng.randint(0, (slack - start) // (lines - 1))
        cuts = [start + gap * index for index in range(lines)]
    return [cut + _LINE_PITCH * index for index, cut in enumerate(cuts)]


def _page_size(rng: random.Random, layout: Layout) -> tuple[int, int]:
    """Height and width of the page in its window: smaller on one side if there are bars."""
    height, width = layout.page or layout.window
    if rng.random() >= layout.bars:
        return height, width
    if rng.random() < 0.5:
        return max(2 * _LINE_PITCH, round(height * rng.uniform(0.5, 1.0))), width
    return height, round(width * rng.uniform(0.6, 1.0))


def draw_page(rng: random.Random, layout: Layout, style: Style) -> DrawnPage:
    """One page of the world with its truth; at least one line."""
    while True:
        size = _page_size(rng, layout)
        mask, lines = _write_lines(rng, size, layout, style)
        if not lines:
            continue
        cells = all_cells(layout.window)
        if layout.keep:
            ink = _page_cells(layout) if layout.page else _inked_cells(mask, lines)
            if ink.sum() > layout.keep:
                continue
            cells = _add_blank(rng, ink, layout.keep)
        pixels = paint(rng, _gather(mask, cells) if layout.keep else mask, style.degrade)
        if layout.keep:
            beyond = (cells * CELL >= np.array(size)).any(axis=1).repeat(CELL)
            pixels[beyond] = _BAR_GREY
        else:
            pixels[size[0] :] = _BAR_GREY
            pixels[:, size[1] :] = _BAR_GREY
        fields = {line.key: line.value for line in lines if line.key}
        return DrawnPage(pixels, tuple(lines), fields, cells)


def _write_lines(
    rng: random.Random, size: tuple[int, int], layout: Layout, style: Style
) -> tuple[NDArray[np.uint8], list[Line]]:
    """Coverage mask of the whole window, and the lines on the page of `size` (H, W) in it."""
    height, width = size
    lines: list[Line] = []
    pen = _Pen(layout.window, style, rng)
    most = min(layout.max_lines, height // _LINE_PITCH)
    count = rng.randint(min(layout.min_lines, most), most)
    labels = world.CHINESE_LABELS if rng.random() < 0.6 else world.LATIN_LABELS
    keys = rng.sample(labels, len(labels))
    margin = rng.randint(0, min(40, width // 4)) if rng.random() < 0.5 else None
    for y in _offsets(rng, count, height):
        pen.change()
        x = margin if margin is not None else rng.randint(0, width // 3)
        wording = _word_line(rng, layout, keys, min(layout.widest, width - 2 - x), pen)
        line = pen.write(wording, x, y) if wording else None
        if line is not None:
            lines.append(line)
    return pen.mask, lines


def all_cells(window: tuple[int, int]) -> NDArray[np.int64]:
    """Every cell of a window (H, W pixels), in reading order, (K, 2)."""
    return np.argwhere(np.ones((window[0] // CELL, window[1] // CELL), np.bool_))


def _page_cells(layout: Layout) -> NDArray[np.bool_]:
    """The cells of a page that lies in the corner of its window, (rows, columns)."""
    assert layout.page is not None
    shown = np.zeros((layout.window[0] // CELL, layout.window[1] // CELL), np.bool_)
    shown[: layout.page[0] // CELL, : layout.page[1] // CELL] = True
    return shown


def _inked_cells(mask: NDArray[np.uint8], lines: list[Line]) -> NDArray[np.bool_]:
    """The cells with ink or a character's centre, (rows, columns)."""
    rows, columns = mask.shape[0] // CELL, mask.shape[1] // CELL
    ink = mask.reshape(rows, CELL, columns, CELL).max(axis=(1, 3)) > 0
    for line in lines:
        for mark in line.marks:
            ink[int(line.center_y // CELL), min(columns - 1, int(mark.center_x // CELL))] = True
    return ink


def _add_blank(rng: random.Random, ink: NDArray[np.bool_], keep: int) -> NDArray[np.int64]:
    """The places of `ink` and random others, `keep` in all, in reading order."""
    shown = ink.copy()
    for row, column in rng.sample([tuple(c) for c in np.argwhere(~ink)], keep - int(ink.sum())):
        shown[row, column] = True
    return np.argwhere(shown)


def _gather(mask: NDArray[np.uint8], cells: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The cells of a mask one below the other, (K * 32, 32)."""
    return np.concatenate([mask[r : r + CELL, c : c + CELL] for r, c in cells * CELL])


def _noise(rng: random.Random, shape: tuple[int, int], sigma: float) -> NDArray[np.float32]:
    generator = np.random.default_rng(rng.getrandbits(32))
    return generator.standard_normal(shape, dtype=np.float32) * np.float32(sigma)


def paint(rng: random.Random, mask: NDArray[np.uint8], degrade: float) -> NDArray[np.uint8]:
    """Ink on paper: colours, and for a share `degrade` blur, noise and JPEG. (H, W, 3) uint8."""
    paper = np.array([255 - 70 * rng.random() * rng.random() for _ in range(3)], np.float32)
    ink = np.array([110 * rng.random() * rng.random() for _ in range(3)], np.float32)
    if rng.random() < 0.08:
        paper, ink = ink, paper
    bad = rng.random() < degrade
    if bad and rng.random() < 0.5:
        soft = cv2.blur(mask, (3, 3))
        mask = cv2.addWeighted(mask, 0.5, soft, 0.5, 0)
    alpha = mask[..., None].astype(np.float32) / 255
    pixels = paper + (ink - paper) * alpha
    if bad and rng.random() < 0.7:
        pixels += _noise(rng, mask.shape, 10 * rng.random())[..., None]
    image = np.clip(pixels + 0.5, 0, 255).astype(np.uint8)
    if bad and rng.random() < 0.4:
        quality = [cv2.IMWRITE_JPEG_QUALITY, rng.randint(55, 95)]
        _, coded = cv2.imencode(".jpg", image, quality)
        image = cv2.imdecode(coded, cv2.IMREAD_COLOR)
    return image
