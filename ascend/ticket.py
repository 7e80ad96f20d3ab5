"""One sequence as the scheduler sees it: what it feeds, where it stands, who still wants it.

Axes: S prompt tokens, n text tokens, C hidden, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ascend.engines import Array
from ascend.generate import Generation
from profiling.spans import Recording, current


class TokenInputs(Protocol):
    """What a model feeds for text tokens after the prompt."""

    def embed(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Rows (n, C)."""

    def rotary(self, start: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """cos, sin (count, D) float32 of the positions start..start+count-1."""


@dataclass(frozen=True, slots=True)
class PromptRows:
    """A prompt ready for prefill: `embeds` (S, C) in host or engine memory, closed by the scheduler
    if it is the engine's; `cos`, `sin` (S, D) float32."""

    embeds: NDArray[np.float32] | Array
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]

    def chunk(self, start: int, count: int) -> NDArray[np.float32] | Array:
        """Rows start..start+count of the prompt: (1, count, C) or, on the engine, (count, C)."""
        if isinstance(self.embeds, np.ndarray):
            return self.embeds[None, start : start + count]
        return self.embeds.rows(start, count)

    def close(self) -> None:
        if not isinstance(self.embeds, np.ndarray):
            self.embeds.close()


@dataclass(eq=False, slots=True)
class Ticket:
    """One sequence and where it stands; `generation` holds its answer.

    `prepare` makes the prompt's rows (it runs the vision graph) on the thread that drives the
    engine, when a slot is free and not before. `deadline` is on `time.monotonic`; `cancelled` is
    asked before every step and may be called from any thread. `record` takes the spans of the
    steps that the sequence took part in."""

    generation: Generation
    prepare: Callable[[], PromptRows]
    cancelled: Callable[[], bool] | None = None
    deadline: float | None = None
    slot: int | None = None
    filled: int = 0
    rows: PromptRows | None = None
    error: Exception | None = None
    record: Recording | None = field(default_factory=current)

    @property
    def done(self) -> bool:
        return self.error is not None or self.generation.finish_reason is not None

    @property
    def prefilled(self) -> bool:
        return self.filled >= self.generation.prompt_length


@dataclass(frozen=True, slots=True)
class Load:
    """What a scheduler does now, and has done since it was made: `decode_steps` with
    `decoded_sequences` in all (their ratio is the mean batch) gave `decoded_tokens`."""

    waiting: int
    active: int
    slots: int
    decode_steps: int
    decoded_sequences: int
    decoded_tokens: int
