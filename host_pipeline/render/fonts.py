"""Finds a font that can show what was read: a free CJK face of the system, or Pillow's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# File names, widest coverage first: Noto and Source Han (OFL), WenQuanYi and Droid (Apache, GPL),
# AR PL, then what Windows and macOS bring, then Latin, Greek and Cyrillic alone.
_NAMES = (
    "NotoSansCJK-Regular.ttc",
    "NotoSansCJKsc-Regular.otf",
    "NotoSansSC-Regular.otf",
    "NotoSansSC-Regular.ttf",
    "SourceHanSansSC-Regular.otf",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "DroidSansFallbackFull.ttf",
    "DroidSansFallback.ttf",
    "uming.ttc",
    "ukai.ttc",
    "msyh.ttc",
    "simhei.ttf",
    "PingFang.ttc",
    "Hiragino Sans GB.ttc",
    "DejaVuSans.ttf",
)


def find_font() -> Path | None:
    """The best font file of this machine, None if there is none that we know."""
    ranks = {name.lower(): rank for rank, name in enumerate(_NAMES)}
    best: tuple[int, Path] | None = None
    for folder in _folders():
        for parent, _, names in os.walk(folder):
            for name in names:
                rank = ranks.get(name.lower())
                if rank is not None and (best is None or rank < best[0]):
                    best = (rank, Path(parent, name))
    return best[1] if best else None


def _folders() -> Iterator[Path]:
    home = Path.home()
    if sys.platform == "win32":
        yield Path(os.environ.get("WINDIR", r"C:\Windows"), "Fonts")
    elif sys.platform == "darwin":
        yield from (Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts")
    else:
        yield from (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
        yield from (home / ".local/share/fonts", home / ".fonts")


@dataclass(slots=True)
class FontBook:
    """One face in every size asked for, each loaded once. `path` None: Pillow's built-in face."""

    path: Path | None
    _sizes: dict[int, Font] = field(default_factory=dict)

    def size(self, pixels: int) -> Font:
        """The face at `pixels` (at least 6) em size."""
        pixels = max(pixels, 6)
        if pixels not in self._sizes:
            self._sizes[pixels] = (
                ImageFont.load_default(pixels)
                if self.path is None
                else ImageFont.truetype(str(self.path), pixels)
            )
        return self._sizes[pixels]

    def lacks(self, text: str) -> str:
        """The different characters of `text` that the face shows as its missing-glyph box."""
        font = self.size(16)
        missing = _ink(font, "\U0010ffff")
        return "".join(c for c in sorted(set(text)) if not c.isspace() and _ink(font, c) == missing)


def _ink(font: Font, character: str) -> bytes:
    mask = font.getmask(character)
    return repr(mask.size).encode() + bytes(mask)
