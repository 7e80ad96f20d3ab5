"""Many answers on one engine: each the same as alone, in fair order, and gone when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from ascend.draft import PromptLookup
from ascend.errors import DeadlineExceeded, UsageError
from ascend.generate import Generation, Sampling, Stops
from ascend.scheduler import Scheduler
from ascend.ticket import PromptRows, Ticket
from tests.toy_engine import VOCABULARY, ToyEngine, ToyInputs

CAPACITY = 160
STOPS = Stops(stop=frozenset({0, 1}), banned=frozenset({2, 3}))


def scheduler(engine: ToyEngine, slots: int = 4, chunk: int = 16, max_draft: int = 0) -> Scheduler:
    return Scheduler(
        engine,
        ToyInputs(engine),
        slots=slots,
        capacity=CAPACITY,
        chunk=chunk,
        max_draft=max_draft,
    )


def step_until(shared: Scheduler, reached: Callable[[], bool], most: int = 500) -> None:
    """Drive the engine; a test that never gets there fails."""
    for _ in range(most):
        if reached():
            return
        shared.step()
    raise AssertionError(f"not reached within {most} steps")


def prompt_of(seed: int) -> list[int]:
    random = np.random.default_rng(seed)
    return random.integers(4, VOCABULARY, int(random.integers(1, 70))).tolist()


def ticket(
    engine: ToyEngine,
    seed: int,
    max_tokens: int | None = None,
    drafter: PromptLookup | None = None,
    stops: Stops = STOPS,
    cancelled: Callable[[], bool] | None = None,
    deadline: float | None = None,
) -> Ticket:
    prompt = prompt_of(seed)
    sampling = Sampling(
        temperature=(0.0, 0.7)[seed % 2],
        repetition_penalty=(1.0, 1.08)[seed % 3 == 0],
        max_tokens=max_tokens or 5 + seed % 60,
        seed=seed,
    )

    def prepare() -> PromptRows:
        inputs = ToyInputs(engine)
        embeds = engine.empty((len(prompt), engine.embedding.shape[1]), np.float32)
        embeds.write(0, inputs.embed(prompt))
        return PromptRows(embeds, *inputs.rotary(0, len(prompt)))

    generation = Generation(prompt, VOCABULARY, sampling, stops, drafter)
    return Ticket(generation, prepare, cancelled, deadline)


def alone(seed: int, **settings: int) -> tuple[list[int], str | None]:
    engine = ToyEngine()
    with_one = scheduler(engine, slots=1, **settings)
    one = ticket(engine, seed)
    with_one.submit(one)
    with_one.wait(one)
    return one.generation.tokens, one.generation.finish_reason


def test_mixed_requests_answer_as_one_by_one() -> None:
    engine = ToyEngine()
    together = scheduler(engine)
    tickets = [ticket(engine, seed) for seed in range(32)]
    for one in tickets:
        together.submit(one)
    while together.step():
        assert together.load().active <= 4
    for seed, one in enumerate(tickets):
        assert (one.generation.tokens, one.generation.finish_reason) == alone(seed)
    assert max(sum(c > 0 for c in counts) for _, counts in engine.calls) == 4
    load = together.load()
    assert 2 < load.decoded_sequences / load.decode_steps <= 4
    tokens = sum(len(t.generation.tokens) for t in tickets)
    assert tokens - 32 <= load.decoded_tokens <= tokens  # the first one of each comes with prefill
    assert engine.open_arrays == 0


def test_the_chunk_size_does_not_matter() -> None:
    for seed in range(6):
        assert alone(seed, chunk=1) == alone(seed, chunk=7) == alone(seed, chunk=500)


def test_drafting_gives_the_same_answers_and_leaves_no_surplus_in_the_cache() -> None:
    for seed in range(8):
        engine = ToyEngine()
        drafting = scheduler(engine, slots=1, max_draft=5)
        one = ticket(engine, seed, drafter=PromptLookup(shortest=1))
        drafting.submit(one)
        drafting.wait(one)
        assert (one.generation.tokens, one.generation.finish_reason) == alone(seed)
        if one.generation.drafted:
            assert max(max(counts) for _, counts in engine.calls[1:]) > 1


def test_prefill_of_a_newcomer_does_not_hold_up_who_decodes() -> None:
    engine = ToyEngine()
    shared = scheduler(engine, chunk=4)
    first = ticket(engine, 2, max_tokens=40, stops=Stops(frozenset()))
    shared.submit(first)
    step_until(shared, lambda: first.prefilled)
    shared.submit(ticket(engine, 5))
    before = len(first.generation.tokens)
    for done in range(1, 5):
        shared.step()
        assert len(first.generation.tokens) == before + done


def test_a_sequence_leaves_at_its_end_and_the_next_takes_its_slot() -> None:
    engine = ToyEngine()
    narrow = scheduler(engine, slots=2, chunk=200)
    endless = Stops(frozenset())
    order: list[int] = []
    tickets = [ticket(engine, seed, max_tokens=4, stops=endless) for seed in range(6)]
    for one in tickets:
        narrow.submit(one)
    assert narrow.load().waiting == 6
    while narrow.step():
        assert narrow.load().active <= 2
        order += [i for i, one in enumerate(tickets) if one.done and i not in order]
    assert order == sorted(order)
    assert narrow.load().waiting == narrow.load().active == 0


def test_threads_that_wait_share_the_engine() -> None:
    engine = ToyEngine()
    shared = scheduler(engine)
    answers: dict[int, list[int]] = {}

    def read(seed: int) -> None:
        one = ticket(engine, seed)
        shared.submit(one)
        shared.wait(one)
        answers[seed] = one.generation.tokens

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {seed: alone(seed)[0] for seed in range(12)}
    assert shared.load().active == shared.load().waiting == 0


def test_waiting_for_more_tokens_returns_at_each() -> None:
    engine = ToyEngine()
    streaming = scheduler(engine)
    one = ticket(engine, 4, max_tokens=9, stops=Stops(frozenset()))
    streaming.submit(one)
    seen = []
    while not one.done:
        streaming.wait(one, have=len(one.generation.tokens))
        seen.append(len(one.generation.tokens))
    assert seen == list(range(1, 10))


def test_cancelling_stops_within_one_token_and_frees_the_slot() -> None:
    engine = ToyEngine()
    one_slot = scheduler(engine, slots=1)
    wish = threading.Event()
    endless = Stops(frozenset())
    victim = ticket(engine, 2, max_tokens=90, stops=endless, cancelled=wish.is_set)
    heir = ticket(engine, 4)
    one_slot.submit(victim)
    one_slot.submit(heir)
    step_until(one_slot, lambda: len(victim.generation.tokens) >= 5)
    wish.set()
    one_slot.step()
    assert len(victim.generation.tokens) <= 6
    assert victim.generation.finish_reason == "cancelled"
    one_slot.wait(victim)
    one_slot.wait(heir)
    assert heir.generation.tokens == alone(4)[0]


def test_cancelled_while_waiting_never_runs() -> None:
    engine = ToyEngine()
    idle = scheduler(engine)
    one = ticket(engine, 1, cancelled=lambda: True)
    idle.submit(one)
    idle.wait(one)
    assert (one.generation.tokens, one.generation.finish_reason) == ([], "cancelled")
    assert engine.calls == []


def test_a_passed_deadline_is_raised_to_who_waits_and_to_nobody_else() -> None:
    engine = ToyEngine()
    shared = scheduler(engine)
    late, other = ticket(engine, 1, deadline=time.monotonic() - 1), ticket(engine, 2)
    shared.submit(late)
    shared.submit(other)
    with pytest.raises(DeadlineExceeded, match="after 0 tokens"):
        shared.wait(late)
    shared.wait(other)
    assert other.generation.tokens == alone(2)[0]


def poison(call: int, logits: np.ndarray) -> np.ndarray:
    return np.full_like(logits, np.nan) if call == 6 else logits


def test_nan_ends_who_got_it_and_the_next_gets_a_fresh_cache() -> None:
    engine = ToyEngine(fault=poison)
    shared = scheduler(engine, slots=1, chunk=200)
    ill = ticket(engine, 2, max_tokens=50, stops=Stops(frozenset()))
    shared.submit(ill)
    shared.wait(ill)
    assert ill.generation.finish_reason == "numeric_fault"
    assert len(ill.generation.tokens) == 5
    well = ticket(engine, 4)
    shared.submit(well)
    shared.wait(well)
    assert well.generation.tokens == alone(4)[0]
    assert engine.open_caches == 1


class DeviceLost(RuntimeError):
    pass


def lose_device(call: int, logits: np.ndarray) -> np.ndarray:
    if call == 8:
        raise DeviceLost("507018")
    return logits


def test_a_fault_of_the_engine_ends_those_in_the_step_and_the_rest_goes_on() -> None:
    engine = ToyEngine(fault=lose_device)
    shared = scheduler(engine, slots=2, chunk=200)
    endless = Stops(frozenset())
    tickets = [ticket(engine, seed, max_tokens=20, stops=endless) for seed in (2, 4)]
    tickets += [ticket(engine, seed) for seed in (6, 8)]
    for one in tickets:
        shared.submit(one)
    for one in tickets[:2]:
        with pytest.raises(DeviceLost):
            shared.wait(one)
    for seed, one in zip((6, 8), tickets[2:], strict=True):
        shared.wait(one)
        assert one.generation.tokens == alone(seed)[0]
    assert engine.open_arrays == 0


def test_a_fault_of_the_vision_graph_ends_its_own_sequence_only() -> None:
    engine = ToyEngine()
    shared = scheduler(engine)
    good, bad = ticket(engine, 2), ticket(engine, 4)

    def fail() -> PromptRows:
        raise DeviceLost("vision")

    bad.prepare = fail
    for one in (bad, good):
        shared.submit(one)
    with pytest.raises(DeviceLost):
        shared.wait(bad)
    shared.wait(good)
    assert good.generation.tokens == alone(2)[0]


def test_a_prompt_longer_than_the_cache_is_refused_with_both_numbers() -> None:
    engine = ToyEngine()
    small = scheduler(engine)
    long = Ticket(Generation([5] * 160, VOCABULARY, Sampling(), STOPS), lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="160 tokens, the cache holds 160"):
        small.submit(long)
    assert small.room(100) == 60


def test_close_cancels_and_releases_and_refuses_newcomers() -> None:
    engine = ToyEngine()
    closing = scheduler(engine)
    one = ticket(engine, 2, max_tokens=90, stops=Stops(frozenset()))
    closing.submit(one)
    for _ in range(8):
        closing.step()
    closing.close()
    closing.close()
    assert one.generation.finish_reason == "cancelled"
    assert (engine.open_caches, engine.open_arrays, closing.load().active) == (0, 0, 0)
    with pytest.raises(UsageError, match="closed"):
        closing.submit(ticket(engine, 3))
