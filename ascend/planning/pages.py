"""The pages that a plan is made for: sizes from a table, labels or pictures, as the patches and
prompt rows that each takes when nothing limits it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend.errors import UsageError
from host_pipeline.errors import InputError
from host_pipeline.letterbox import canvas_for
from host_pipeline.page import open_document
from host_pipeline.views import COMFORTABLE_PX, glyph_height

# Tokens of a prompt that are not the image: template and instruction (the longest of the official
# instructions has about 50 tokens).
TEXT_TOKENS = 40
_UNMEASURED = 0.5  # as host_pipeline.views: no print found, half size


@dataclass(frozen=True, slots=True)
class PageSize:
    """A kind of page: pixels, how often it comes, and the height of its print in pixels if known;
    `measured` says that somebody looked (print_px None then means that there is none)."""

    width: int
    height: int
    weight: float = 1.0
    print_px: float | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class PageNeed:
    """What a page takes: patches at comfortable print, and the tokens of its prompt on a canvas of
    at most that many patches."""

    page: PageSize
    patches: int

    def prompt_rows(self, budget: int, patch: int = 16, merge: int = 2) -> int:
        """Prompt tokens when the canvas has at most `budget` patches."""
        canvas = canvas_for(
            self.page.height, self.page.width, min(self.patches, budget), patch, merge
        )
        cell = patch * merge
        down, across = canvas.height // cell, canvas.width // cell
        return down * (across + 1) + 2 + TEXT_TOKENS

    def canvas_patches(self, budget: int, patch: int = 16, merge: int = 2) -> int:
        """Patches of that canvas."""
        page, most = self.page, min(self.patches, budget)
        return canvas_for(page.height, page.width, most, patch, merge).patches


def page_need(page: PageSize, patch: int = 16, merge: int = 2) -> PageNeed:
    """The patches at which a page's print is comfortable to read, as the family chooses them; the
    whole page where its print is not known."""
    wanted = 1.0
    if page.print_px is not None:
        wanted = min(1.0, COMFORTABLE_PX / page.print_px)
    elif page.measured:
        wanted = _UNMEASURED
    cell = patch * merge
    down, across = (math.ceil(max(1.0, s * wanted) / cell) for s in (page.height, page.width))
    return PageNeed(page, down * across * merge * merge)


def read_pages(source: Path) -> list[PageSize]:
    """Page sizes from a .csv (width, height, and if they are there weight or count, print_px), a
    .jsonl of objects with width and height (and an image beside it, whose print is measured), or
    a folder of pictures. Raises UsageError naming file and line."""
    if source.is_dir():
        pages = [_measured(path, 1.0) for path in sorted(source.iterdir()) if path.is_file()]
        found = [page for page in pages if page is not None]
    elif source.suffix == ".jsonl":
        found = list(_labelled(source))
    else:
        found = list(_tabled(source))
    if not found:
        raise UsageError(f"{source}: no page sizes in it")
    return found


def _tabled(source: Path) -> Iterator[PageSize]:
    try:
        with source.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                yield _size(row, source)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error


def _labelled(source: Path) -> Iterator[PageSize]:
    try:
        lines = source.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    for line in filter(str.strip, lines):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{source}: not a line of JSON: {error}") from error
        image = source.parent / str(row.get("image") or "")
        page = _measured(image, 1.0) if image.is_file() else None
        yield page or _size(row, source)


def _size(row: Mapping[str, Any], source: Path) -> PageSize:
    try:
        weight = float(row.get("weight") or row.get("count") or 1)
        shown = row.get("print_px")
        height = float(shown) if shown not in (None, "") else None
        page = PageSize(int(row["width"]), int(row["height"]), weight, height, height is not None)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{source}: {dict(row)}: columns width and height in pixels are wanted ({error!r})"
        ) from error
    if page.width < 1 or page.height < 1 or page.weight < 0:
        raise UsageError(f"{source}: {dict(row)}: sizes start at 1, weights at 0")
    return page


def _measured(path: Path, weight: float) -> PageSize | None:
    """A picture's size and print, or None for what is no picture."""
    try:
        with open_document(path) as document:
            pixels = document.load_page(0).pixels
    except InputError:
        return None
    return PageSize(pixels.shape[1], pixels.shape[0], weight, glyph_height(pixels), True)


def summarise(needs: Sequence[PageNeed]) -> dict[str, Any]:
    """Counts and quartiles, for the head of a report."""
    ordered = sorted(need.patches for need in needs)
    at = {q: ordered[min(int(q * len(ordered)), len(ordered) - 1)] for q in (0.25, 0.5, 0.75)}
    return {
        "pages": len(needs),
        "patches": {"least": ordered[0], "median": at[0.5], "most": ordered[-1],
                    "quartiles": [at[0.25], at[0.75]]},
        "print_measured": sum(need.page.measured for need in needs),
    }  # fmt: skip
