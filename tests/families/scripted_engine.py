"""An engine that reads its prompt back from the rows it is fed and says what a test wrote for it.

Every row must be a row of the embedding table, a constant row of the image, or a content row of
the vision graph: anything else is an error of the family. The n-th page that the vision graph saw
(from 0) is known again by its content rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend.families.hunyuanocr_files import ModelFiles
from tests.toy_engine import ToyArray

BEGIN, NEWLINE, END = -1, -2, -3
CONTENT = -10  # content rows of page n are CONTENT - n

Answer = Callable[[int, str], str]


class ScriptedCache:
    def __init__(self, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.lengths = np.zeros(slots, np.int32)
        self.ids: list[list[int]] = [[] for _ in range(slots)]

    def truncate(self, slot: int, length: int) -> None:
        self.lengths[slot] = length
        del self.ids[slot][length:]

    def close(self) -> None:
        pass


class ScriptedEngine:
    """`answer(page, instruction)` is what it says; `fault(tokens)` may replace its logits after so
    many tokens of an answer."""

    name, emulated = "scripted", False

    def __init__(
        self,
        files: ModelFiles,
        answer: Answer,
        gears: Mapping[str, tuple[Mapping[str, int], ...]] | None = None,
        fault: Callable[[int, NDArray[np.float32]], NDArray[np.float32]] | None = None,
    ) -> None:
        self._files, self._answer, self._gears, self._fault = files, answer, gears or {}, fault
        self.settings: Mapping[str, Any] = {}
        self.prompts: list[list[int]] = []
        self.patch_counts: list[tuple[int, int]] = []
        self.closed = False
        self._wanted: dict[tuple[int, str], list[int]] = {}
        tables, vocab = files.tables, files.dims.text.vocab
        rows = tables.embed_rows(np.arange(vocab))
        self._known = {row.tobytes(): i for i, row in enumerate(rows)}
        for row, name in ((tables.begin, BEGIN), (tables.newline, NEWLINE), (tables.end, END)):
            self._known[row.tobytes()] = name
        self._width = rows.shape[1]

    def gears(self, graph: str) -> tuple[Mapping[str, int], ...] | None:
        return self._gears.get(graph)

    def run(self, graph: str, inputs: Mapping[str, NDArray[Any]]) -> dict[str, ToyArray]:
        patches, mask = inputs["patches"], inputs["mask"]
        used = int((mask[0] == 0).sum())
        assert (mask[0, :used] == 0).all() and (mask[0, used:] == -1e4).all()
        assert len(patches) == len(inputs["pos"]) == mask.shape[1] and not patches[used:].any()
        page = len(self.patch_counts)
        self.patch_counts.append((used, len(patches)))
        row = np.full(self._width, 1000.0 + page, np.float32)
        self._known[row.tobytes()] = CONTENT - page
        content = np.full((len(patches) // 4, self._width), np.nan, np.float32)
        content[: used // 4] = row
        return {"content": ToyArray(content)}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> ToyArray:
        return ToyArray(np.full(shape, np.nan, dtype))

    def kv_cache(self, slots: int, capacity: int) -> ScriptedCache:
        return ScriptedCache(slots, capacity)

    def extend(
        self,
        cache: ScriptedCache,
        first_slot: int,
        counts: Sequence[int],
        embeds: Any,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        batch, width, _ = cos.shape
        values = embeds.values if isinstance(embeds, ToyArray) else embeds
        rows = np.asarray(values, np.float32).reshape(batch, width, -1)
        vocab = self._files.dims.text.vocab
        logits = np.zeros((batch, len(select[0]), vocab), np.float32)
        for b, count in enumerate(counts):
            ids = cache.ids[first_slot + b]
            start = len(ids)
            ids += [self._known[row.tobytes()] for row in rows[b, :count]]
            cache.lengths[first_slot + b] = len(ids)
            for r, index in enumerate(select[b] if count else ()):
                logits[b, r] = self._logits(ids[: start + index + 1])
        return logits

    def close(self) -> None:
        self.closed = True

    def _logits(self, ids: list[int]) -> NDArray[np.float32]:
        special, tokenizer = self._files.special, self._files.tokenizer
        end = len(ids) - 1 - ids[::-1].index(special.user_end)
        prompt, said = ids[: end + 1], ids[end + 1 :]
        if not said and prompt not in self.prompts:
            self.prompts.append(prompt)
        page = CONTENT - min(prompt)
        instruction = tokenizer.decode(prompt[prompt.index(special.image_end) + 1 : -1])
        if not said:
            answer = tokenizer.encode(self._answer(page, instruction))
            self._wanted[page, instruction] = [*answer, min(special.stop)]
        wanted = self._wanted[page, instruction]
        row = np.zeros(self._files.dims.text.vocab, np.float32)
        matches = wanted[: len(said)] == said
        row[wanted[len(said)] if matches else min(special.stop)] = 9.0
        return self._fault(len(said), row) if self._fault else row
