"""Pages that a new model must read like the old one, and how different two texts are."""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from ascend.errors import UsageError
from ascend.failover_config import canary_page

_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp")


@dataclass(frozen=True, slots=True)
class CanaryPage:
    """An encoded picture; `truth` is the text on it where somebody wrote that down."""

    data: bytes
    truth: str | None = None


def load_canaries(folder: str | None) -> tuple[CanaryPage, ...]:
    """The pictures of `folder` by name, or the built-in page. Raises UsageError for none."""
    if folder is None:
        buffer = io.BytesIO()
        Image.fromarray(canary_page().pixels).save(buffer, "PNG")
        return (CanaryPage(buffer.getvalue()),)
    try:
        files = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in _SUFFIXES)
        pages = tuple(CanaryPage(file.read_bytes(), _truth(file)) for file in files)
    except OSError as error:
        raise UsageError(f"canaries {folder}: {error.strerror}") from error
    if not pages:
        raise UsageError(f"canaries {folder}: no picture in that folder")
    return pages


def page_text_of(outcome: Mapping[str, Any]) -> str:
    """The text of a page's JSON; a failed page has its error's code."""
    if "error" in outcome:
        return f"<{outcome['error']['code']}>"
    return str(outcome["text"] or outcome["raw"])


def drift_of(one: Sequence[str], other: Sequence[str]) -> float:
    """0 for equal texts to 1 for texts that share nothing; white space does not count. The share of
    characters outside the longest common blocks (difflib's ratio)."""
    a, b = (" ".join(" ".join(texts).split()) for texts in (one, other))
    if a == b:
        return 0.0
    return 1.0 - difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()


def _truth(picture: Path) -> str | None:
    beside = picture.with_suffix(".txt")
    return beside.read_text("utf-8") if beside.is_file() else None
