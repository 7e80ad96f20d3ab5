"""Appending rows to the cache gives the logits of the whole sequence, whatever gears, slots, chunks
and forms of appending are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.engine import AclEngine
from acl_runtime.errors import CacheFull, EngineClosed, GraphInputError, NumericFault
from tests.acl_runtime import toy
from tests.acl_runtime.conftest import ACL

CLOSE = 2e-5


def feed(engine: Any, cache: Any, slot: int, seed: int, sizes: list[int]) -> None:
    """Appends sum(sizes) rows in chunks and compares the logits of every row."""
    embeds, cos, sin = toy.rows(sum(sizes), seed)
    wanted, start = toy.reference(embeds[0], cos[0], sin[0]), int(cache.lengths[slot])
    assert start == 0
    for size in sizes:
        part = slice(start, start + size)
        every = [list(range(size))] if size <= 4 else [[size - 1]]
        logits = engine.extend(
            cache, slot, [size], embeds[:, part], cos[:, part], sin[:, part], every
        )
        np.testing.assert_allclose(logits[0], wanted[part][every[0]], atol=CLOSE)
        start += size
    assert cache.lengths[slot] == start


@pytest.mark.parametrize("append", ["bind", "copy"])
@pytest.mark.parametrize("sizes", [[1] * 40, [8, 1, 1, 3], [20, 4, 4, 2, 1], [7, 33, 8, 8]])
def test_chunks_of_any_size_equal_the_whole(
    machine: Any, bundle: Path, append: Any, sizes: list[int]
) -> None:
    with AclEngine.open(bundle, acl=ACL, append=append) as engine:
        feed(engine, engine.kv_cache(1, 64), 0, 1, sizes)


def test_a_gear_longer_than_the_cache_reads_only_masked_rows_beyond_it(engine: AclEngine) -> None:
    """Capacity 32, but verifying four rows has no gear under 64 cache rows."""
    cache = engine.kv_cache(1, 30)
    feed(engine, cache, 0, 2, [8, 8, 4, 4])
    cache.close()


def test_sequences_of_different_length_share_a_step(engine: AclEngine) -> None:
    cache = engine.kv_cache(4, 64)
    lengths, seeds = [5, 9, 2, 30], [11, 12, 13, 14]
    data = [toy.rows(length + 6, seed) for length, seed in zip(lengths, seeds, strict=True)]
    for slot, (length, part) in enumerate(zip(lengths, data, strict=True)):
        embeds, cos, sin = (a[:, :length] for a in part)
        engine.extend(cache, slot, [length], embeds, cos, sin, [[]])
    for step in range(6):  # passes 32 rows in the last slot: the slabs are laid out anew
        rows = [[a[0, n + step] for a in part] for n, part in zip(lengths, data, strict=True)]
        embeds, cos, sin = (np.stack(column)[:, None] for column in zip(*rows, strict=True))
        logits = engine.extend(cache, 0, [1] * 4, embeds, cos, sin, [[0]] * 4)
        for slot, (length, part) in enumerate(zip(lengths, data, strict=True)):
            whole = toy.reference(*(a[0, : length + step + 1] for a in part))
            np.testing.assert_allclose(logits[slot, 0], whole[-1], atol=CLOSE)
    assert cache.stride == 64


def test_a_sequence_that_outgrows_its_place_leaves_its_neighbours_alone(engine: AclEngine) -> None:
    cache = engine.kv_cache(4, 64)
    assert cache.stride == 32
    parts = [toy.rows(length, seed) for seed, length in enumerate((50, 6, 40, 9), 31)]
    for slot, part in enumerate(parts):
        head = [rows[:, :5] for rows in part]
        engine.extend(cache, slot, [5], *head, [[]])
    for slot, part in enumerate(parts):  # one at a time, past 32 rows in two of them
        rest = [rows[:, 5:] for rows in part]
        count = rest[0].shape[1]
        logits = engine.extend(cache, slot, [count], *rest, [[count - 1]])
        whole = toy.reference(*(rows[0] for rows in part))
        np.testing.assert_allclose(logits[0, 0], whole[-1], atol=CLOSE)
    assert (cache.stride, cache.lengths.tolist()) == (64, [50, 6, 40, 9])


def test_slots_that_sit_out_are_left_alone(engine: AclEngine) -> None:
    cache = engine.kv_cache(4, 32)
    a, b = toy.rows(7, 1), toy.rows(7, 2)
    for slot, part in ((0, a), (2, b)):
        engine.extend(cache, slot, [6], *(x[:, :6] for x in part), [[]])
    step = [
        np.concatenate([x[:, 6:], np.zeros_like(x[:, 6:]), y[:, 6:]])
        for x, y in zip(a, b, strict=True)
    ]
    logits = engine.extend(cache, 0, [1, 0, 1], *step, [[0]] * 3)
    np.testing.assert_allclose(logits[0, 0], toy.reference(*(x[0] for x in a))[-1], atol=CLOSE)
    np.testing.assert_allclose(logits[2, 0], toy.reference(*(x[0] for x in b))[-1], atol=CLOSE)
    assert cache.lengths.tolist() == [7, 0, 7, 0]


def test_a_rejected_draft_is_forgotten(engine: AclEngine) -> None:
    cache = engine.kv_cache(1, 64)
    embeds, cos, sin = toy.rows(12, 5)
    engine.extend(cache, 0, [6], embeds[:, :6], cos[:, :6], sin[:, :6], [[5]])
    wrong = toy.rows(4, 99)
    engine.extend(cache, 0, [4], *wrong, [[0, 1, 2, 3]])
    cache.truncate(0, 6)
    logits = engine.extend(cache, 0, [6], embeds[:, 6:], cos[:, 6:], sin[:, 6:], [[5]])
    np.testing.assert_allclose(
        logits[0, 0], toy.reference(embeds[0], cos[0], sin[0])[-1], atol=CLOSE
    )


def test_a_slot_that_shrinks_lets_the_slabs_shrink(engine: AclEngine) -> None:
    cache = engine.kv_cache(4, 64)
    for slot, length in ((0, 3), (1, 50)):
        engine.extend(cache, slot, [length], *toy.rows(length, slot), [[]])
    one = toy.rows(1, 8)
    both = [np.concatenate([x, x]) for x in one]
    engine.extend(cache, 0, [1, 1], *both, [[0], [0]])
    assert cache.stride == 64
    cache.truncate(1, 0)
    logits = engine.extend(cache, 0, [1, 1], *both, [[0], [0]])
    assert cache.stride == 32
    rows = toy.rows(3, 0)
    whole = [np.concatenate([x[0], y[0], y[0]]) for x, y in zip(rows, one, strict=True)]
    np.testing.assert_allclose(logits[0, 0], toy.reference(*whole)[-1], atol=CLOSE)


def test_rows_on_the_device_are_taken_from_there(engine: AclEngine, machine: Any) -> None:
    embeds, cos, sin = toy.rows(16, 3)
    array = engine.empty((20, toy.DIMS["C"]), np.float32)
    array.write(2, embeds[0])
    cache = engine.kv_cache(1, 64)
    machine.counters.clear()
    logits = engine.extend(cache, 0, [16], array.rows(2, 16), cos, sin, [[15]])
    assert machine.counters.bytes["d2d"] == embeds.nbytes
    np.testing.assert_allclose(
        logits[0, 0], toy.reference(embeds[0], cos[0], sin[0])[-1], atol=CLOSE
    )
    array.close()


def test_greedy_answers_are_the_same_in_both_forms_and_in_half_precision(
    machine: Any, bundle: Path, half_bundle: Path
) -> None:
    wanted = toy.greedy_reference(20)
    for folder, append in ((bundle, "bind"), (bundle, "copy"), (half_bundle, "bind")):
        with AclEngine.open(folder, acl=ACL, append=append) as engine:
            assert toy.greedy(engine, engine.kv_cache(1, 64), 0, 20) == wanted


def test_in_half_precision_rows_shorter_than_64_bytes_apart_still_fit(
    machine: Any, half_bundle: Path
) -> None:
    with AclEngine.open(half_bundle, acl=ACL) as engine:
        cache = engine.kv_cache(4, 32)
        embeds, cos, sin = toy.rows(9, 4)
        logits = engine.extend(cache, 3, [9], embeds, cos, sin, [[8]])
        wanted = toy.reference(embeds[0], cos[0], sin[0])[-1]
        assert np.abs(logits[0, 0] - wanted).max() < 0.02


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first_slot": 1}, "slots 1..1 of a cache with 1"),
        ({"counts": [9]}, r"embeds: shape \(1, 4, 24\).*want \(1, 9, 24\)"),
        ({"cos": np.zeros((1, 4, 3), np.float32)}, r"cos: shape \(1, 4, 3\)"),
        ({"select": [[4]]}, r"select \[4\] is not within 4 rows"),
        ({"select": [[0], [1]]}, "one equal length for each"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_runs(
    engine: AclEngine, machine: Any, change: dict[str, Any], said: str
) -> None:
    cache = engine.kv_cache(1, 64)
    embeds, cos, sin = toy.rows(4)
    given = {"first_slot": 0, "counts": [4], "embeds": embeds, "cos": cos, "sin": sin}
    with pytest.raises(GraphInputError, match=said):
        engine.extend(cache, **(given | {"select": [[0]]} | change))
    assert not machine.counters.executes
    assert cache.lengths.tolist() == [0]


def test_a_full_cache_says_so_and_changes_nothing(engine: AclEngine) -> None:
    cache = engine.kv_cache(1, 10)
    engine.extend(cache, 0, [8], *toy.rows(8), [[7]])
    with pytest.raises(CacheFull, match="slot 0: 8 rows and 3 more exceed its capacity 10"):
        engine.extend(cache, 0, [3], *toy.rows(3), [[2]])
    assert cache.lengths.tolist() == [8]


@pytest.mark.parametrize(
    ("slots", "capacity", "said"),
    [
        (5, 10, "5 slots: the largest gear has 4"),
        (1, 65, "capacity 65: the largest gear for 1 slot.s. has 64 rows"),
        (0, 10, "0 slots"),
        (2, 0, "capacity 0"),
    ],
)
def test_caches_beyond_the_gears_are_refused(
    engine: AclEngine, slots: int, capacity: int, said: str
) -> None:
    with pytest.raises(GraphInputError, match=said):
        engine.kv_cache(slots, capacity)


def test_nan_in_the_logits_is_an_error_and_a_new_cache_is_clean(
    engine: AclEngine, machine: Any
) -> None:
    cache = engine.kv_cache(1, 64)
    machine.faults.inject("device.execute", kind="nan")
    with pytest.raises(NumericFault, match=r"llm\.logits: .* are NaN"):
        engine.extend(cache, 0, [4], *toy.rows(4), [[3]])
    cache.close()
    assert engine.degraded is None
    feed(engine, engine.kv_cache(1, 64), 0, 1, [4, 4])


def test_a_closed_cache_is_refused_and_truncating_it_is_harmless(engine: AclEngine) -> None:
    cache = engine.kv_cache(1, 64)
    engine.extend(cache, 0, [4], *toy.rows(4), [[3]])
    cache.close()
    cache.close()
    cache.truncate(0, 0)
    with pytest.raises(EngineClosed, match="cache has been closed"):
        engine.extend(cache, 0, [4], *toy.rows(4), [[3]])


def test_running_the_chunk_graph_by_itself_leaves_the_cache_alone(engine: AclEngine) -> None:
    """`run` points the graph at other memory; the next token must point it back."""
    cache = engine.kv_cache(1, 64)
    rows = toy.rows(7, 5)
    engine.extend(cache, 0, [5], *(part[:, :5] for part in rows), [[4]])
    engine.extend(cache, 0, [1], *(part[:, 5:6] for part in rows), [[0]])
    shapes = engine.contract.graph("llm").input_shapes(engine.gears("llm")[0])
    outputs = engine.run("llm", {n: np.zeros(s, np.float32) for n, s in shapes.items()})
    assert outputs["new_key.0"].shape == (1, 1, toy.DIMS["K"] * toy.DIMS["D"])
    logits = engine.extend(cache, 0, [1], *(part[:, 6:] for part in rows), [[0]])
    wanted = toy.reference(*(part[0] for part in rows))[-1]
    np.testing.assert_allclose(logits[0, 0], wanted, atol=CLOSE)
