"""Prompt-lookup drafting: OCR answers repeat themselves, so the text so far often knows what
follows.

Proposes tokens; whoever verifies them decides (greedy verification keeps the answer exact, because
a proposed token is kept only where the model itself would have chosen it). Knows token ids, nothing
of models or engines.
"""

from __future__ import annotations

from collections.abc import Sequence


class PromptLookup:
    """The n-grams of one sequence and where each was last seen (Saxena 2023, "Prompt Lookup
    Decoding").

    longest, shortest: lengths of the suffix that is looked up, longest first. One object per
    sequence; `propose` costs O(new tokens) because the index only grows.
    """

    __slots__ = ("_ids", "_next", "longest", "shortest")

    def __init__(self, longest: int = 5, shortest: int = 2) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"n-gram lengths {shortest}..{longest}: need 1 <= shortest <= longest")
        self.longest = longest
        self.shortest = shortest
        self._ids: list[int] = []
        # n-gram -> index of the token after its latest occurrence; never the suffix itself.
        self._next: dict[tuple[int, ...], int] = {}

    def propose(self, ids: Sequence[int], max_draft: int) -> list[int]:
        """At most `max_draft` tokens that followed the latest earlier occurrence of the end of
        `ids`.

        ids: prompt and generated tokens so far; each call continues the one before (otherwise the
        index is rebuilt). A match that reaches the end of `ids` goes on into the draft itself, so a
        period is continued. Empty when the last `shortest` tokens were never seen before.
        """
        self._follow(ids)
        known = self._ids
        for size in range(min(self.longest, len(known) - 1), self.shortest - 1, -1):
            start = self._next.get(tuple(known[-size:]))
            if start is not None:
                return _continue(known, start, max_draft)
        return []

    def _follow(self, ids: Sequence[int]) -> None:
        old = len(self._ids)
        if len(ids) < old or (old and ids[old - 1] != self._ids[-1]):
            self._ids, self._next, old = [], {}, 0
        self._ids.extend(ids[old:])
        for end in range(max(old, self.shortest), len(self._ids)):
            # Known only once a token follows: `end` is the index of that token.
            for size in range(self.shortest, min(self.longest, end) + 1):
                self._next[tuple(self._ids[end - size : end])] = end


def _continue(known: list[int], start: int, count: int) -> list[int]:
    draft = known[start : start + count]
    period = len(known) - start
    while len(draft) < count:
        draft.append(draft[len(draft) - period])
    return draft
