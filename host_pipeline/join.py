"""Puts the texts of overlapping bands of a page together, so that what two saw stands there once.

Only texts; which boxes belong together is `host_pipeline.tile`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

# Two readings of one line of print differ by a few characters at a tile's edge.
_SAME_TEXT = 0.75
# At most so many lines fit into an overlap of six character heights, with some room.
_LONGEST_JOINT = 8
_NUMBERS = re.compile(r"\d+")


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


def join_pieces(pieces: Sequence[str]) -> str:
    """The pieces of one line, from left to right, that neighbouring tiles cut: what the end of one
    and the start of the next have in common stands there once."""
    joined = ""
    for piece in pieces:
        longest = min(len(joined), len(piece))
        shared = (n for n in range(longest, 0, -1) if joined.endswith(piece[:n]))
        joined += piece[next(shared, 0) :]
    return joined


def _joint(above: Sequence[str], below: Sequence[str]) -> tuple[int, int]:
    """How many lines of `above` to keep and of `below` to skip: where the lines that both have
    agree best, the longest such run of them."""
    best, joint = (0.0, 0), (len(above), 0)
    for count in range(1, min(_LONGEST_JOINT, len(above), len(below)) + 1):
        for cut_above, cut_below in ((0, 0), (0, 1), (1, 0), (1, 1)):
            end, start = len(above) - cut_above, cut_below
            if end < count or start + count > len(below):
                continue
            pairs = zip(above[end - count : end], below[start : start + count], strict=True)
            agreement = [_agreement(a, b) for a, b in pairs]
            rank = (round(sum(agreement) / count, 2), count)
            if min(agreement) >= _SAME_TEXT and rank > best:
                best, joint = rank, (end, start + count)
    return joint


def _agreement(a: str, b: str) -> float:
    """0..1: how far two lines are readings of one. Other numbers make another line."""
    a, b = a.strip(), b.strip()
    if not a or not b or _NUMBERS.findall(a) != _NUMBERS.findall(b):
        return float(a == b)
    return difflib.SequenceMatcher(None, a, b, autojunk=False).ratio()
