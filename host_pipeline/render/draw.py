"""The page with its quads and their order, and beside it the text where it was read."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from host_pipeline.render.fonts import FontBook, find_font
from host_pipeline.result import Line, Quad, Result

_MAX_SIDE = 2400  # pixels; a larger page is shrunk, or drawing it would need gigabytes
# Five hues that stay apart for colour-blind readers (Okabe and Ito, jfly.uni-koeln.de/color).
_COLORS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233))

log = logging.getLogger(__name__)


def draw_page(pixels: NDArray[np.uint8], result: Result, font: Path | None = None) -> Image.Image:
    """A picture of `pixels` (H, W, 3) RGB of the upright page with every quad outlined and
    numbered in reading order, and to its right the same page with the text alone.

    `font` is a font file; None takes the best of the system. Characters that it lacks are logged
    and drawn as boxes. Pages beyond 2400 pixels a side are shrunk."""
    height, width = pixels.shape[:2]
    scale = min(1.0, _MAX_SIDE / max(height, width, 1))
    page = Image.fromarray(np.ascontiguousarray(pixels[..., :3]))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    page = page.resize(size, Image.Resampling.BILINEAR) if size != page.size else page.copy()
    fonts = FontBook(font or find_font())
    text = "".join(line.text for line in result.lines) or result.text
    lacking = fonts.lacks(text)
    if lacking:
        log.warning(
            "the font %s lacks %d characters that were read, as %s; give a font that has them",
            fonts.path or "built into Pillow", len(lacking), lacking[:10],
        )  # fmt: skip
    panel = Image.new("RGB", page.size, "white")
    placed = [(line, _scaled(line.quad, scale)) for line in result.lines if line.quad is not None]
    for number, (line, quad) in enumerate(placed, 1):
        color = _COLORS[(number - 1) % len(_COLORS)]
        _draw_text(panel, line, quad, fonts)
        ImageDraw.Draw(panel).polygon(quad, outline=color)
        _draw_quad(page, quad, str(number), color, fonts)
    if not placed and result.text:
        _draw_paragraph(panel, result.text, fonts)
    both = Image.new("RGB", (size[0] * 2, size[1]), "white")
    both.paste(page, (0, 0))
    both.paste(panel, (size[0], 0))
    return both


def _scaled(quad: Quad, scale: float) -> list[tuple[float, float]]:
    return [(x * scale, y * scale) for x, y in quad]


def _draw_quad(
    page: Image.Image,
    quad: list[tuple[float, float]],
    number: str,
    color: tuple[int, int, int],
    fonts: FontBook,
) -> None:
    draw = ImageDraw.Draw(page)
    line_width = max(1, round(max(page.size) / 800))
    draw.line([*quad, quad[0]], fill=color, width=line_width, joint="curve")
    font = fonts.size(max(10, round(max(page.size) / 90)))
    left, top, right, bottom = draw.textbbox((0, 0), number, font=font)
    tag_width, tag_height = right - left + 4, bottom - top + 4
    # The number stands before the line's own start, inside the page.
    x = min(max(quad[0][0] - tag_width, 0), max(page.size[0] - tag_width, 0))
    y = min(max(quad[0][1], 0), max(page.size[1] - tag_height, 0))
    draw.rectangle([x, y, x + tag_width, y + tag_height], fill=color)
    draw.text((x + 2 - left, y + 2 - top), number, fill="white", font=font)


def _draw_text(
    panel: Image.Image, line: Line, quad: list[tuple[float, float]], fonts: FontBook
) -> None:
    """Draw the line's text into `quad`, stretched to it, turned as it is."""
    width = (math.dist(quad[0], quad[1]) + math.dist(quad[3], quad[2])) / 2
    height = (math.dist(quad[0], quad[3]) + math.dist(quad[1], quad[2])) / 2
    if not line.text.strip() or min(width, height) < 4:
        return
    stacked = line.vertical and height > width
    mask = _text_mask(line.text, width, height, fonts, stacked=stacked)
    xs, ys = [x for x, _ in quad], [y for _, y in quad]
    left, top = max(0, math.floor(min(xs))), max(0, math.floor(min(ys)))
    right = min(panel.size[0], math.ceil(max(xs)) + 1)
    bottom = min(panel.size[1], math.ceil(max(ys)) + 1)
    if right <= left or bottom <= top:
        return
    h, w = mask.shape
    source = np.asarray([(0, 0), (w, 0), (w, h), (0, h)], np.float32)
    target = np.asarray([(x - left, y - top) for x, y in quad], np.float32)
    if abs(cv2.contourArea(target)) < 1.0:
        return
    turned = cv2.warpPerspective(
        mask, cv2.getPerspectiveTransform(source, target), (right - left, bottom - top),
        flags=cv2.INTER_AREA,
    )  # fmt: skip
    panel.paste((0, 0, 0), (left, top), Image.fromarray(turned))


def _text_mask(
    text: str, width: float, height: float, fonts: FontBook, *, stacked: bool
) -> NDArray[np.uint8]:
    """The ink (H, W) uint8 of `text` filling a box of the given proportions; `stacked` puts one
    character below the other."""
    rows = list(text) if stacked else text.splitlines() or [text]
    across = 1 if stacked else max(len(rows), 1)
    em = width if stacked else height / across
    font = fonts.size(min(round(em * 0.8), 200))
    joined = "\n".join(rows)
    probe = ImageDraw.Draw(Image.new("L", (1, 1)))
    left, top, right, bottom = probe.multiline_textbbox((0, 0), joined, font=font, spacing=2)
    ink = (max(1, math.ceil(right - left)), max(1, math.ceil(bottom - top)))
    # Never stretched beyond its size: a short text in a wide box stands at the box's start.
    room = (max(ink[0], round(width)), max(ink[1], round(height)))
    mask = Image.new("L", room, 0)
    origin = (-left, (room[1] - ink[1]) / 2 - top)
    ImageDraw.Draw(mask).multiline_text(origin, joined, fill=255, font=font, spacing=2)
    return np.asarray(mask)


def _draw_paragraph(panel: Image.Image, text: str, fonts: FontBook) -> None:
    """Draw text that has no positions, broken to the panel's width, as far as it fits."""
    size = max(10, min(panel.size) // 40)
    font = fonts.size(size)
    draw = ImageDraw.Draw(panel)
    y = 4.0
    for paragraph in text.split("\n"):
        rest = paragraph or " "
        while rest and y < panel.size[1]:
            count = _fitting(rest, panel.size[0] - 8, draw, font)
            draw.text((4, y), rest[:count], fill="black", font=font)
            rest = rest[count:]
            y += size * 1.4


def _fitting(text: str, width: float, draw: ImageDraw.ImageDraw, font: object) -> int:
    """How many characters of `text` fit into `width` (at least one), by bisection."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if draw.textlength(text[:middle], font=font) <= width:  # type: ignore[arg-type]
            low = middle
        else:
            high = middle - 1
    return low
