"""One answer, token by token: sampling, stop rules, repetition guard, draft verification.

The same for every engine; knows token ids and logits, no text and no model.
Axes: R rows of logits of one step, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ascend.draft import PromptLookup
from ascend.errors import UsageError

FinishReason = Literal["stop", "length", "repetition", "cancelled", "numeric_fault"]

# A reader whose numbers overflowed answers one token for ever ("!!!!", vllm-ascend issues 562, 5144
# and 3934); no page starts with the same token this often.
CONSTANT_START = 32
# A wrong guess makes a step of several rows out of one of one row, which costs a CPU more than it
# may win: after misses in a row, drafting pauses for up to so many tokens.
_LONGEST_PAUSE = 16
_FITTED = 8  # tokens at the end of an answer that a period must fit before it is looked at


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen.

    temperature 0 or top_k 1 is greedy; top_k 0 keeps all tokens; the repetition penalty counts the
    prompt and the answer, as both reference implementations do. `seed` makes sampling repeatable.

    Raises UsageError for a value out of its range."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    max_tokens: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            (self.temperature >= 0, "temperature", "0 or more"),
            (self.top_k >= 0, "top_k", "0 (all tokens) or more"),
            (0 < self.top_p <= 1, "top_p", "over 0 and at most 1"),
            (self.repetition_penalty > 0, "repetition_penalty", "over 0"),
            (self.max_tokens >= 1, "max_tokens", "1 or more"),
            (self.seed >= 0, "seed", "0 or more"),
        )
        for fine, name, allowed in checks:
            if not fine:
                raise UsageError(f"{name}={getattr(self, name)}: must be {allowed}")


# The vendor's own clients: 1.5 inference/vLLM/infer_vllm_client.py (its cap is 32768), 1.0
# run_hy_ocr.py (top_k 1 makes it greedy; the vLLM recipe repeats it).
PROFILES: Mapping[str, Sampling] = MappingProxyType(
    {
        "official-1.5": Sampling(repetition_penalty=1.08, max_tokens=32768),
        "official-1.0": Sampling(top_k=1, top_p=0.95, max_tokens=16384),
    }
)


@dataclass(frozen=True, slots=True)
class LoopRule:
    """When the end of an answer counts as a loop and not as a true repeat.

    The vendor's rule (1.5, inference/utils/output_utils.py) on tokens: the end is one unit of at
    most `max_unit` tokens, `min_repeats` times or more, over `min_span` tokens or more. It would
    cut a table of equal rows, so a unit that holds a row or a line break is a loop only
    after `row_repeats` repeats or over `row_span` tokens. Looked for every `every` tokens."""

    min_repeats: int = 8
    min_span: int = 512
    max_unit: int = 256
    row_repeats: int = 64
    row_span: int = 3072
    every: int = 64

    def unit(self, tokens: Sequence[int], is_row: Callable[[Sequence[int]], bool]) -> int | None:
        """The length of the unit that `tokens` end by looping, or None."""
        if len(tokens) < self.min_span:
            return None
        tail = np.asarray(tokens[-self.row_span - self.max_unit :])
        for unit in _period_candidates(tail, self.max_unit):
            span = _periodic_tail(tail, unit)
            if span < max(self.min_span, self.min_repeats * unit):
                continue
            row = span // unit <= self.row_repeats and span < self.row_span
            if not (row and is_row(tail[-unit:].tolist())):
                return unit
        return None


class Drafter(Protocol):
    """Guesses what follows `ids`; a wrong guess costs time, never the answer."""

    def propose(self, ids: Sequence[int], max_draft: int) -> list[int]:
        """At most `max_draft` ids that may follow `ids`; none when nothing suggests itself."""


@dataclass(frozen=True, slots=True)
class Stops:
    """The ids that end an answer, those that never come out, and what bounds its length.

    `room`: how many tokens the context or the cache leaves after the prompt. `is_row` tells the
    repetition guard whether a run of tokens holds a row or a line break."""

    stop: frozenset[int]
    banned: frozenset[int] = frozenset()
    room: int = 1 << 30
    loop: LoopRule = LoopRule()
    is_row: Callable[[Sequence[int]], bool] = lambda _: True


class Generation:
    """The state of one answer between two steps of an engine.

    After the prompt, and after each step, give `accept` the logits of the rows that `inputs` named;
    `tokens` grows until `finish_reason` is set. `logprobs[i]` is the log-probability that the
    model itself gave `tokens[i]` (before penalty, ban and temperature). A stop token is not
    among `tokens`.

    A draft changes how many tokens one step gives, never which: each row is sampled in order with
    the penalty of everything before it, and a draft token counts only if it is what was sampled."""

    def __init__(
        self,
        prompt_ids: Sequence[int] | NDArray[np.int32],
        vocabulary: int,
        sampling: Sampling,
        stops: Stops,
        drafter: Drafter | None = None,
    ) -> None:
        self.sampling = sampling
        self.stops = stops
        self.limit = min(sampling.max_tokens, stops.room)
        self.prompt_length = len(prompt_ids)
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.finish_reason: FinishReason | None = None
        self.drafted = 0
        self.drafted_kept = 0
        self._history = [int(i) for i in prompt_ids]
        self._seen = np.zeros(vocabulary, np.bool_)
        self._seen[self._history] = True
        known = np.flatnonzero(self._seen)
        # Ids that the penalty touches, so that it costs what was seen and not the vocabulary.
        self._seen_ids = np.empty(min(vocabulary, len(known) + self.limit), np.intp)
        self._seen_ids[: len(known)] = known
        self._seen_count = len(known)
        self._banned = np.array(sorted(i for i in stops.banned if i < vocabulary), np.intp)
        self._scores = np.empty(vocabulary, np.float32)
        self._random = np.random.default_rng(sampling.seed)
        self._drafter = drafter
        self._draft: list[int] = []
        self._draft_width, self._draft_pause, self._draft_wait = 4, 0, 0

    def inputs(self, max_draft: int = 0) -> list[int]:
        """The tokens of the next step: the newest one, then at most `max_draft` guesses."""
        left = self.limit - len(self.tokens) - 1
        count = min(max_draft, left, self._draft_width)
        if self._drafter is not None and count > 0:
            if self._draft_wait > 0:
                self._draft_wait -= 1
            else:
                self._draft = self._drafter.propose(self._history, count)[:count]
        self.drafted += len(self._draft)
        return [self.tokens[-1], *self._draft]

    def accept(self, logits: NDArray[np.float32]) -> int:
        """Choose tokens from `logits` (R, V), row i of which follows input i (one row after the
        prompt). Returns how many of the inputs are part of the answer; the cache forgets the rest.
        """
        draft, self._draft = self._draft, []
        kept = 0
        while self._choose(logits[kept]) and kept < len(draft) and self.tokens[-1] == draft[kept]:
            kept += 1
        if draft:
            self._judge_draft(kept)
        return kept + 1

    def _judge_draft(self, kept: int) -> None:
        """Guess further after hits, pause after misses; no token depends on it."""
        self.drafted_kept += kept
        self._draft_width = 2 * kept + 1 if kept else 2
        self._draft_pause = 0 if kept else min(2 * self._draft_pause or 1, _LONGEST_PAUSE)
        self._draft_wait = self._draft_pause

    def cancel(self) -> None:
        """End here; a reason that is already set stays."""
        self.finish_reason = self.finish_reason or "cancelled"

    def _choose(self, logits: NDArray[np.float32]) -> bool:
        """Take one token from `logits` (V,); False when the answer ended with or before it."""
        logprob = _log_normaliser(logits, self._scores)
        if not np.isfinite(logprob):
            self.finish_reason = "numeric_fault"
            return False
        token = sample(self._adjusted(logits), self.sampling, self._random)
        if token in self.stops.stop:
            self.finish_reason = "stop"
            return False
        self._take(token, float(logits[token]) - logprob)
        return self.finish_reason is None

    def _take(self, token: int, logprob: float) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self._history.append(token)
        if not self._seen[token]:
            self._seen[token] = True
            self._seen_ids[self._seen_count] = token
            self._seen_count += 1
        if len(self.tokens) == CONSTANT_START and len(set(self.tokens)) == 1:
            self.finish_reason = "numeric_fault"
        elif len(self.tokens) % self.stops.loop.every == 0 and self._loops():
            self.finish_reason = "repetition"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"

    def _loops(self) -> bool:
        return self.stops.loop.unit(self.tokens, self.stops.is_row) is not None

    def _adjusted(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """`logits` with penalty and ban, in this answer's own row of memory."""
        scores = self._scores
        np.copyto(scores, logits)
        penalty = self.sampling.repetition_penalty
        if penalty != 1.0:
            ids = self._seen_ids[: self._seen_count]
            seen = scores[ids]
            scores[ids] = np.where(seen > 0, seen / penalty, seen * penalty)
        scores[self._banned] = -np.inf
        return scores


def sample(scores: NDArray[np.float32], sampling: Sampling, random: np.random.Generator) -> int:
    """One token from `scores` (V,): the best, or one drawn after temperature, top-k and top-p.

    In the order of the reference implementations; top-p keeps the fewest tokens whose probabilities
    reach it. One number is drawn per call, so equal seeds give equal answers."""
    if sampling.temperature == 0 or sampling.top_k == 1:
        return int(np.argmax(scores))
    order = np.argsort(-scores, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    kept = scores[order].astype(np.float64) / sampling.temperature
    weights = np.exp(kept - kept[0])
    cumulative = np.cumsum(weights / weights.sum())
    last = int(np.searchsorted(cumulative, sampling.top_p)) if sampling.top_p < 1 else len(order)
    cumulative = cumulative[: last + 1]
    drawn = random.random() * cumulative[-1]
    return int(order[min(int(np.searchsorted(cumulative, drawn, "right")), len(cumulative) - 1)])


def default_drafter() -> Drafter:
    """The drafter of one answer; each needs its own, because it indexes what it has seen."""
    return PromptLookup()


def _log_normaliser(logits: NDArray[np.float32], scratch: NDArray[np.float32]) -> float:
    """log Σ exp(logits); not finite if any of them is NaN or +inf. Overwrites `scratch` (V,).

    The exponentials are OpenCV's: 47 us for 120,818 logits where numpy takes 290, same sum to
    1e-8, and they were half of the host's time for a token."""
    top = float(logits.max())
    if not np.isfinite(top):
        return top
    np.subtract(logits, top, out=scratch)
    cv2.exp(scratch[None], scratch[None])
    return top + float(np.log(scratch.sum()))


def _period_candidates(tokens: NDArray[np.int_], longest: int) -> list[int]:
    """The periods up to `longest` that the last tokens of `tokens` fit; most ends fit none."""
    fits = np.ones(min(longest, len(tokens) - _FITTED), np.bool_)
    for back in range(1, _FITTED + 1):
        before = tokens[len(tokens) - back - len(fits) : len(tokens) - back]
        fits &= before[::-1] == tokens[-back]
    return (np.flatnonzero(fits) + 1).tolist()


def _periodic_tail(tokens: NDArray[np.int_], unit: int) -> int:
    """How many tokens at the end of `tokens` repeat with the period `unit`."""
    if len(tokens) <= unit:
        return 0
    differs = np.flatnonzero(tokens[unit:] != tokens[:-unit])
    start = int(differs[-1]) + 1 if len(differs) else 0
    return len(tokens) - start
