"""One answer: what is chosen, when it ends, and that drafting changes nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ascend.errors import UsageError
from ascend.generate import (
    CONSTANT_START,
    PROFILES,
    Generation,
    LoopRule,
    Sampling,
    Stops,
    sample,
)

V = 32
STOP = 31


def logits_for(token: int, size: int = V) -> np.ndarray:
    """Logits (1, V) whose best token is `token`."""
    row = np.linspace(0.1, 0.0, size, dtype=np.float32)
    row[token] = 5.0
    return row[None]


def play(script: list[int], stops: Stops, sampling: Sampling | None = None) -> Generation:
    """Feed a model that wants to say `script`, whatever was said, until the answer ends."""
    generation = Generation([1, 2], 4096, sampling or Sampling(max_tokens=100_000), stops)
    for token in script:
        generation.accept(logits_for(token, 4096))
        if generation.finish_reason:
            break
    return generation


def stops(**changes: object) -> Stops:
    return Stops(stop=frozenset({STOP}), **changes)  # type: ignore[arg-type]


def test_greedy_takes_the_best_and_its_probability_is_the_models_own() -> None:
    logits = np.array([[0.0, 1.0, 3.0, 2.0]], np.float32)
    generation = Generation([2], 4, Sampling(repetition_penalty=10.0), Stops(frozenset()))
    generation.accept(logits)
    # 2 is in the prompt, so the penalty makes 3 the best; its probability is the unpenalised one.
    assert generation.tokens == [3]
    expected = 2.0 - math.log(sum(math.exp(x) for x in (0.0, 1.0, 3.0, 2.0)))
    assert generation.logprobs == pytest.approx([expected], abs=1e-6)


def test_penalty_shrinks_positive_and_grows_negative_scores() -> None:
    logits = np.array([[-1.0, 2.0, -1.05, 1.9]], np.float32)
    generation = Generation([1, 0], 4, Sampling(repetition_penalty=1.08), Stops(frozenset()))
    generation.accept(logits)
    assert generation.tokens == [3]  # 2.0 / 1.08 = 1.85 < 1.9
    generation.accept(np.array([[-1.0, -3.0, -1.05, -3.0]], np.float32))
    assert generation.tokens == [3, 2]  # -1 · 1.08 = -1.08 < -1.05


def test_the_penalty_equals_the_reference_processor() -> None:
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers.generation.logits_process")
    random = np.random.default_rng(3)
    prompt, logits = random.integers(0, V, 12), random.normal(0, 3, (1, V)).astype(np.float32)
    generation = Generation(prompt, V, Sampling(repetition_penalty=1.3), Stops(frozenset()))
    reference = processors.RepetitionPenaltyLogitsProcessor(1.3)
    for _ in range(20):
        history = torch.tensor([[*map(int, prompt), *generation.tokens]])
        expected = int(reference(history, torch.from_numpy(logits.copy())).argmax())
        generation.accept(logits)
        assert generation.tokens[-1] == expected
        logits = random.normal(0, 3, (1, V)).astype(np.float32)


def test_banned_ids_never_come_out() -> None:
    generation = Generation([1], V, Sampling(), stops(banned=frozenset({7, 9, 500})))
    generation.accept(logits_for(7))
    assert generation.tokens and generation.tokens[0] not in {7, 9}


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it() -> None:
    assert play([4, 5, STOP, 6], stops()).tokens == [4, 5]
    assert play([4, 5, STOP, 6], stops()).finish_reason == "stop"


def test_the_room_left_bounds_the_answer_before_max_tokens_does() -> None:
    cut = play(list(range(3, 30)), stops(room=5))
    assert (len(cut.tokens), cut.finish_reason) == (5, "length")
    cut = play(list(range(3, 30)), stops(room=50), Sampling(max_tokens=7))
    assert (len(cut.tokens), cut.finish_reason) == (7, "length")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_broken_number_is_a_numeric_fault(bad: float) -> None:
    logits = logits_for(3)
    logits[0, 17] = bad
    generation = Generation([1], V, Sampling(), stops())
    generation.accept(logits)
    assert (generation.tokens, generation.finish_reason) == ([], "numeric_fault")


def test_one_token_from_the_start_on_is_a_numeric_fault() -> None:
    constant = play([8] * 200, stops())
    assert constant.finish_reason == "numeric_fault"
    assert len(constant.tokens) == CONSTANT_START
    assert play([5, *[8] * 200, STOP], stops()).finish_reason == "stop"


def test_cancel_keeps_what_was_read_and_a_set_reason() -> None:
    generation = play([4, 5], stops())
    generation.cancel()
    assert (generation.tokens, generation.finish_reason) == ([4, 5], "cancelled")
    ended = play([4, STOP], stops())
    ended.cancel()
    assert ended.finish_reason == "stop"


@pytest.mark.parametrize("unit", [1, 2, 7, 200])
def test_a_loop_is_stopped(unit: int) -> None:
    block = [100 + i for i in range(unit)]
    looped = play([5, 6, 7, *block * (8000 // unit)], stops(is_row=lambda _: False))
    assert looped.finish_reason == "repetition"
    assert len(looped.tokens) <= max(512, 8 * unit) + 64 + 3


@pytest.mark.parametrize("unit", [7, 200])
def test_a_loop_over_rows_is_stopped_later(unit: int) -> None:
    block = [100 + i for i in range(unit)]
    looped = play([5, 6, 7, *block * (8000 // unit)], stops(is_row=lambda _: True))
    assert looped.finish_reason == "repetition"
    assert len(looped.tokens) <= 3072 + 64 + 3


@pytest.mark.parametrize("row", [3, 12, 34, 60, 76])
def test_forty_equal_table_rows_survive(row: int) -> None:
    rows = [100 + i for i in range(row)] * 40
    read = play([5, 6, *rows, 7, STOP], stops(is_row=lambda ids: 100 in ids))
    assert read.finish_reason == "stop"
    assert read.tokens == [5, 6, *rows, 7]


def test_a_loop_is_found_only_at_the_end() -> None:
    rule = LoopRule()
    loop = [1, 2, 3] * 400
    assert rule.unit(loop, lambda _: False) == 3
    assert rule.unit([*loop, 9, 8, 7, 6], lambda _: False) is None
    assert rule.unit(list(range(3000)), lambda _: False) is None


class Oracle:
    """Drafts from a fixed text; some of it wrong when `spoil` says so."""

    def __init__(self, text: list[int], prompt: int, spoil: int) -> None:
        self._text, self._prompt, self._spoil = text, prompt, spoil

    def propose(self, ids: list[int], max_draft: int) -> list[int]:
        at = len(ids) - self._prompt
        draft = self._text[at : at + max_draft]
        return [t if (at + i) % self._spoil else (t + 1) % V for i, t in enumerate(draft)]


def table_model(seed: int) -> np.ndarray:
    """Logits (V, V) of a model that sees only the last token."""
    return np.random.default_rng(seed).normal(0, 2, (V, V)).astype(np.float32)


def speak(
    model: np.ndarray, sampling: Sampling, limits: Stops, drafter: Oracle | None, width: int
) -> tuple[Generation, int]:
    generation = Generation([1, 2, 3], V, sampling, limits, drafter)
    generation.accept(model[[3]])
    steps = 0
    while generation.finish_reason is None:
        fed = generation.inputs(width)
        kept = generation.accept(model[fed])
        assert 1 <= kept <= len(fed)
        steps += 1
    return generation, steps


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("spoil", [2, 5, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_drafting_never_changes_an_answer(temperature: float, spoil: int, seed: int) -> None:
    model = table_model(seed)
    sampling = Sampling(temperature, top_k=20, repetition_penalty=1.08, max_tokens=90, seed=seed)
    plain, plain_steps = speak(model, sampling, stops(), None, 0)
    drafted, steps = speak(model, sampling, stops(), Oracle(plain.tokens, 3, spoil), 7)
    assert drafted.tokens == plain.tokens
    assert drafted.logprobs == plain.logprobs
    assert drafted.finish_reason == plain.finish_reason
    if plain_steps > 20 and spoil == 1000:
        assert steps <= plain_steps / 4 and drafted.drafted_kept > 0


class Liar:
    """Never right."""

    asked = 0

    def propose(self, ids: list[int], max_draft: int) -> list[int]:
        self.asked += 1
        return [(ids[-1] + 1) % 3] * max_draft


def test_a_drafter_that_is_never_right_is_asked_ever_less() -> None:
    liar = Liar()
    generation = Generation([1], V, Sampling(max_tokens=200), stops(), liar)
    random = np.random.default_rng(0)
    generation.accept(logits_for(5))
    while generation.finish_reason is None:
        fed = generation.inputs(7)
        rows = [logits_for(int(random.integers(3, 30)))[0] for _ in fed]
        assert generation.accept(np.stack(rows)) == 1
    assert len(generation.tokens) == 200
    assert liar.asked <= 20 and generation.drafted_kept == 0


def test_a_draft_never_reaches_past_the_limit() -> None:
    generation = Generation([1], V, Sampling(max_tokens=3), stops(), Oracle([4] * 99, 1, 1000))
    generation.accept(logits_for(4))
    assert len(generation.inputs(7)) == 1 + 1  # two more tokens: the newest step gives one itself


def test_sampling_follows_the_distribution_of_the_kept_tokens() -> None:
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    random = np.random.default_rng(0)

    def frequencies(**settings: float) -> np.ndarray:
        chosen = Sampling(temperature=1.0, **settings)  # type: ignore[arg-type]
        drawn = [sample(scores, chosen, random) for _ in range(4000)]
        return np.bincount(drawn, minlength=4) / 4000

    assert frequencies() == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)
    assert frequencies(top_k=2) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert frequencies(top_p=0.7) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert frequencies(top_p=0.01) == pytest.approx([1, 0, 0, 0])


def test_a_seed_repeats_its_answer_and_another_does_not() -> None:
    model = table_model(9)
    hot = [Sampling(temperature=1.5, max_tokens=60, seed=s) for s in (1, 1, 2)]
    first, again, other = (speak(model, s, Stops(frozenset()), None, 0)[0].tokens for s in hot)
    assert first == again != other


def test_the_named_profiles_are_the_vendors() -> None:
    new, old = PROFILES["official-1.5"], PROFILES["official-1.0"]
    assert (new.temperature, new.top_p, new.top_k, new.repetition_penalty) == (0.0, 1.0, 0, 1.08)
    assert (old.temperature, old.top_p, old.top_k, old.repetition_penalty) == (0.0, 0.95, 1, 1.0)
    assert (new.max_tokens, old.max_tokens) == (32768, 16384)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"repetition_penalty": 0.0},
        {"max_tokens": 0},
    ],
)
def test_values_out_of_range_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
