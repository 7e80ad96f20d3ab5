"""Continuous batching: many answers share the slots of one engine's cache.

A sequence is admitted when a slot is free, first come first served; prompts are prefilled in chunks
between decode steps; a sequence leaves the moment it ends. Knows engines and token ids, no model.
Axes: B slots of one step, Q tokens of one step, S prompt tokens, C hidden, D head size.

No thread of its own: whoever waits for an answer drives the engine for all, one at a time, so an
idle service costs nothing and a slow reader of a stream delays nobody else who waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine, KVCache
from ascend.errors import DeadlineExceeded, UsageError
from ascend.ticket import Load, Ticket, TokenInputs
from profiling.spans import span, together


class Scheduler:
    """The sequences of one engine. `submit` and `wait` may be called from any thread.

    slots, capacity: sequences at once and cache rows of each; chunk: prompt tokens of one prefill
    step; max_draft: guesses verified in one step while a single sequence runs.
    The engine is borrowed, the cache is owned until `close`."""

    def __init__(
        self,
        engine: Engine,
        inputs: TokenInputs,
        *,
        slots: int = 1,
        capacity: int,
        chunk: int = 512,
        max_draft: int = 0,
    ) -> None:
        self.capacity = capacity
        self._engine, self._inputs = engine, inputs
        self._slots, self._chunk, self._max_draft = slots, chunk, max_draft
        self._cache: KVCache | None = None
        self._spoilt = False
        self._waiting: deque[Ticket] = deque()
        self._active: list[Ticket] = []
        self._turn = threading.Condition()
        self._driving = False
        self._closed = False
        self._steps = self._stepped = self._tokens = 0

    def load(self) -> Load:
        """The queue, the slots and the counts so far, for whoever reports on them."""
        waiting, active = len(self._waiting), len(self._active)
        return Load(waiting, active, self._slots, self._steps, self._stepped, self._tokens)

    def room(self, prompt_length: int) -> int:
        """How many tokens an answer to such a prompt can have.

        Raises UsageError if the prompt itself does not fit."""
        if prompt_length >= self.capacity:
            raise UsageError(
                f"the prompt takes {prompt_length} tokens, the cache holds {self.capacity}; "
                "use a smaller canvas or a larger cache"
            )
        return self.capacity - prompt_length

    def submit(self, ticket: Ticket) -> None:
        """Queue a sequence. Raises UsageError when its prompt does not fit or all is closed."""
        self.room(ticket.generation.prompt_length)
        with self._turn:
            if self._closed:
                raise UsageError("the model is closed; open it again")
            self._waiting.append(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """End a sequence that nobody waits for any more; one that ended stays as it is."""
        ticket.generation.cancel()
        with self._turn:
            if not self._driving:  # else the driver does it within a step
                self._release_ended()

    def wait(self, ticket: Ticket, have: int | None = None) -> None:
        """Return when `ticket` is done, or has more than `have` tokens if that is given.

        Drives the engine meanwhile unless another waiting thread does. Raises what ended the
        sequence: the engine's errors, DeadlineExceeded, or what `prepare` raised."""
        while not self._ready(ticket, have):
            with self._turn:
                while self._driving and not self._ready(ticket, have):
                    self._turn.wait()
                if self._ready(ticket, have):
                    break
                self._driving = True
            try:
                while not self._ready(ticket, have):
                    if not self.step() and not self._ready(ticket, have):
                        raise UsageError("this sequence was never submitted")
                    with self._turn:
                        self._turn.notify_all()
            finally:
                with self._turn:
                    self._driving = False
                    self._turn.notify_all()
        if ticket.error is not None:
            raise ticket.error

    def step(self) -> bool:
        """One prefill chunk and one decode step, of whoever is due; False when nothing is left.

        Only one thread at a time; `wait` sees to that."""
        self._release_ended()
        self._admit()
        decoding = [t for t in self._active if t.prefilled]
        filling = next((t for t in self._active if not t.prefilled), None)
        if filling is not None and filling.rows is None:
            self._guard([filling], self._prepare, filling)
        if filling is not None and not filling.done:
            self._guard([filling], self._prefill, filling)
        if decoding:
            self._guard(decoding, self._decode, decoding)
        self._release_ended()
        return bool(self._active or self._waiting)

    def close(self) -> None:
        """Cancel what runs and release the cache; idempotent."""
        with self._turn:
            self._closed = True
            while self._driving:
                self._cancel_all()
                self._turn.wait()
        self._cancel_all()
        self._release_ended()
        self._drop_cache()

    def _ready(self, ticket: Ticket, have: int | None) -> bool:
        return ticket.done or (have is not None and len(ticket.generation.tokens) > have)

    def _admit(self) -> None:
        if self._spoilt:
            if self._active:
                return
            self._drop_cache()
        while self._waiting:
            taken = {t.slot for t in self._active}
            slot = next((s for s in range(self._slots) if s not in taken), None)
            if slot is None:
                return
            ticket = self._waiting.popleft()
            ticket.slot = slot
            self._active.append(ticket)

    def _prepare(self, ticket: Ticket) -> None:
        with together([ticket.record]):
            ticket.rows = ticket.prepare()

    def _prefill(self, ticket: Ticket) -> None:
        cache, slot = self._open_cache(), _slot_of(ticket)
        assert ticket.rows is not None
        start, length = ticket.filled, ticket.generation.prompt_length
        count = min(self._chunk, length - start)
        rows = slice(start, start + count)
        last = [count - 1] if start + count == length else []
        with together([ticket.record]), span("prefill"):
            logits = self._engine.extend(
                cache,
                slot,
                [count],
                ticket.rows.chunk(start, count),
                ticket.rows.cos[None, rows],
                ticket.rows.sin[None, rows],
                [last],
            )
        ticket.filled += count
        if last:
            ticket.rows.close()
            ticket.rows = None
            ticket.generation.accept(logits[0])

    def _decode(self, tickets: Sequence[Ticket]) -> None:
        cache = self._open_cache()
        max_draft = self._max_draft if len(self._active) == 1 else 0
        first = min(map(_slot_of, tickets))
        batch = max(map(_slot_of, tickets)) - first + 1
        tokens: list[list[int]] = [[] for _ in range(batch)]
        for ticket in tickets:
            tokens[_slot_of(ticket) - first] = ticket.generation.inputs(max_draft)
        counts = [len(ids) for ids in tokens]
        records = [ticket.record for ticket in tickets]
        with together(records), span("embed"):
            embeds, cos, sin = self._rows(tokens, cache.lengths[first : first + batch])
        select = [_wanted(count, max(counts)) for count in counts]
        with together(records), span("decode_step"):
            logits = self._engine.extend(cache, first, counts, embeds, cos, sin, select)
        self._steps, self._stepped = self._steps + 1, self._stepped + len(tickets)
        with together(records), span("sampling"):
            for ticket in tickets:
                slot = _slot_of(ticket)
                kept = ticket.generation.accept(logits[slot - first])
                self._tokens += kept
                if kept < counts[slot - first]:
                    surplus = counts[slot - first] - kept
                    cache.truncate(slot, int(cache.lengths[slot]) - surplus)

    def _rows(
        self, tokens: Sequence[Sequence[int]], lengths: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """embeds (B, Q, C), cos and sin (B, Q, D) of one step; padding is zero."""
        widest = max(map(len, tokens))
        parts = [
            (b, self._inputs.embed(ids), *self._inputs.rotary(int(lengths[b]), len(ids)))
            for b, ids in enumerate(tokens)
            if ids
        ]
        _, row, cos_row, _ = parts[0]
        embeds = np.zeros((len(tokens), widest, row.shape[1]), row.dtype)
        cos = np.zeros((len(tokens), widest, cos_row.shape[1]), np.float32)
        sin = np.zeros_like(cos)
        for b, rows, c, s in parts:
            embeds[b, : len(rows)], cos[b, : len(c)], sin[b, : len(s)] = rows, c, s
        return embeds, cos, sin

    def _guard(self, tickets: Sequence[Ticket], work: Callable[..., None], *given: Any) -> None:
        """Run `work`; what it raises ends `tickets` and is raised where they are waited for."""
        try:
            work(*given)
        except Exception as error:
            for ticket in tickets:
                ticket.error = error
            # What a failed step left in the slots is unknown; before the first there is nothing.
            self._spoilt = self._spoilt or any(t.rows is not None or t.prefilled for t in tickets)

    def _release_ended(self) -> None:
        """Free the slots of sequences that ended, were cancelled or ran out of time."""
        for ticket in [*self._active, *self._waiting]:
            if not ticket.done:
                self._check_wish(ticket)
            if ticket.done:
                self._release(ticket)

    def _check_wish(self, ticket: Ticket) -> None:
        if ticket.cancelled is not None and ticket.cancelled():
            ticket.generation.cancel()
        elif ticket.deadline is not None and time.monotonic() > ticket.deadline:
            made = len(ticket.generation.tokens)
            ticket.error = DeadlineExceeded(
                f"the deadline passed after {made} tokens; allow more time or limit max_tokens"
            )

    def _release(self, ticket: Ticket) -> None:
        if ticket.rows is not None:
            ticket.rows.close()
            ticket.rows = None
        if ticket in self._active:
            self._active.remove(ticket)
        elif ticket in self._waiting:
            self._waiting.remove(ticket)
        if ticket.slot is not None:
            if ticket.generation.finish_reason == "numeric_fault":
                self._spoilt = True
            if self._cache is not None:
                self._cache.truncate(ticket.slot, 0)
            ticket.slot = None

    def _open_cache(self) -> KVCache:
        if self._cache is None:
            self._cache = self._engine.kv_cache(self._slots, self.capacity)
        return self._cache

    def _drop_cache(self) -> None:
        """Forget a cache that may hold NaN: masked rows count 0 times, and 0·NaN is NaN."""
        self._spoilt = False
        if self._cache is not None:
            self._cache.close()
            self._cache = None

    def _cancel_all(self) -> None:
        for ticket in [*self._active, *self._waiting]:
            ticket.generation.cancel()


def _slot_of(ticket: Ticket) -> int:
    assert ticket.slot is not None
    return ticket.slot


def _wanted(count: int, widest: int) -> list[int]:
    """Every row of a slot's chunk, the last one again until all slots ask for equally many."""
    return [min(i, max(count - 1, 0)) for i in range(widest)]
