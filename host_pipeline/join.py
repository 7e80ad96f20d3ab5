"""Puts the texts of overlapping bands of a page together, so that what two saw stands there once.

For texts without positions; boxes are put together by `host_pipeline.tile`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

# Two readings of one line of print differ by a few characters at a tile's edge.
_SAME_TEXT = 0.75
# At most so many lines fit into an overlap of six character heights, with some room.
_LONGEST_JOINT = 8


def join_texts(texts: Sequence[str]) -> str:
    """`texts` of bands from top to bottom as one; lines that end one and start the next once.

    A line that the edge of a band cut in half stands at the end or the start of the joint and
    gives way to the whole one."""
    joined: list[str] = []
    for text in texts:
        lines = text.split("\n")
        keep, skip = _joint(joined, lines)
        joined = joined[:keep] + lines[skip:]
    return "\n".join(joined)


def _joint(above: Sequence[str], below: Sequence[str]) -> tuple[int, int]:
    """How many lines of `above` to keep and of `below` to skip."""
    for count in range(min(_LONGEST_JOINT, len(above), len(below)), 0, -1):
        for cut_above in (0, 1):
            for cut_below in (0, 1):
                end, start = len(above) - cut_above, cut_below
                if end < count or start + count > len(below):
                    continue
                pairs = zip(above[end - count : end], below[start : start + count], strict=True)
                if all(_alike(a, b) for a, b in pairs):
                    return end, start + count
    return len(above), 0


def _alike(a: str, b: str) -> bool:
    a, b = a.strip(), b.strip()
    if not a or not b:
        return a == b
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio() >= _SAME_TEXT
