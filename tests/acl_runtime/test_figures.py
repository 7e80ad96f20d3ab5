"""What one token and one page cost in calls, bytes and allocations, counted exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.engine import AclEngine
from scripts.bench_acl import counts
from scripts.hollow_bundle import hollow_bundle
from tests.acl_runtime import toy
from tests.acl_runtime.conftest import ACL
from tests.peak import peak, reset_peak

LAYERS, ITEM = toy.DIMS["L"], 4


def one_token(engine: AclEngine, cache: Any, slot: int = 0) -> None:
    engine.extend(cache, slot, [1], *toy.rows(1, 5), [[0]])


@pytest.fixture
def warm(engine: AclEngine) -> Any:
    """A cache that has seen a prompt and two tokens."""
    cache = engine.kv_cache(1, 64)
    engine.extend(cache, 0, [8], *toy.rows(8), [[7]])
    one_token(engine, cache)
    one_token(engine, cache)
    return cache


def test_a_token_binds_its_rows_and_copies_nothing_on_the_device(
    engine: AclEngine, warm: Any, machine: Any
) -> None:
    machine.counters.clear()
    one_token(engine, warm)
    calls = dict(machine.counters.calls)
    assert calls == {
        "acl.rt.memcpy": 1,  # its element of the mask
        "acl.rt.memcpy_async": 2,  # embeds, cos and sin together; the logits
        "acl.update_data_buffer": 2 * LAYERS,
        "acl.mdl.execute_async": 1,
        "acl.rt.synchronize_stream_with_timeout": 1,
    }
    assert sum(calls.values()) <= 2 * LAYERS + 16
    assert machine.counters.bytes["d2d"] == 0


def test_a_token_moves_its_row_and_its_logits(engine: AclEngine, warm: Any, machine: Any) -> None:
    machine.counters.clear()
    one_token(engine, warm)
    own = (toy.DIMS["C"] + 2 * toy.DIMS["D"]) * ITEM
    padding = 2 * (32 + 63)  # ALIGN_UP(n, 32) + 32 and a 64-aligned start, for two of three pieces
    assert own + ITEM <= machine.counters.bytes["h2d"] <= own + ITEM + padding
    assert machine.counters.bytes["d2h"] == toy.DIMS["V"] * ITEM


def test_the_mask_costs_one_element_a_token_at_any_length(machine: Any, bundle: Path) -> None:
    with AclEngine.open(bundle, acl=ACL) as engine:
        cache = engine.kv_cache(1, 64)
        engine.extend(cache, 0, [8], *toy.rows(8), [[7]])
        one_token(engine, cache)  # brings the prompt's eight elements and its gear's constants
        seen = set()
        for _ in range(40):  # through the gear change at 32 rows
            machine.counters.clear()
            one_token(engine, cache)
            seen.add(machine.counters.bytes["h2d"])
        assert len(seen) == 1


def test_the_copying_form_costs_one_copy_a_slab(machine: Any, bundle: Path) -> None:
    with AclEngine.open(bundle, acl=ACL, append="copy") as engine:
        cache = engine.kv_cache(1, 64)
        for _ in range(2):
            one_token(engine, cache)
        machine.counters.clear()
        one_token(engine, cache)
        assert machine.counters.calls["acl.update_data_buffer"] == 0
        assert machine.counters.copies["d2d"] == 2 * LAYERS
        row = toy.DIMS["K"] * toy.DIMS["D"] * ITEM
        assert machine.counters.bytes["d2d"] == 2 * LAYERS * row


def test_the_gear_is_set_only_when_it_changes(engine: AclEngine, warm: Any, machine: Any) -> None:
    machine.counters.clear()
    for _ in range(3):
        one_token(engine, warm)
    assert machine.counters.calls["acl.mdl.set_input_dynamic_dims"] == 0
    engine.extend(warm, 0, [3], *toy.rows(3), [[0, 1, 2]])
    one_token(engine, warm)
    assert machine.counters.calls["acl.mdl.set_input_dynamic_dims"] == 2


def test_verifying_a_draft_uploads_no_mask_of_the_chunk(
    engine: AclEngine, warm: Any, machine: Any
) -> None:
    def verify() -> int:
        machine.counters.clear()
        engine.extend(warm, 0, [4], *toy.rows(4), [[0, 1, 2, 3]])
        warm.truncate(0, 10)
        return machine.counters.bytes["h2d"]

    verify()
    rows = 4 * (toy.DIMS["C"] + 2 * toy.DIMS["D"]) * ITEM
    assert verify() <= rows + 4 * ITEM + 2 * (32 + 63)


def test_a_page_allocates_nothing_after_the_first(engine: AclEngine, machine: Any) -> None:
    def page() -> None:
        cache = engine.kv_cache(1, 60)
        array = engine.empty((8, toy.DIMS["C"]), np.float32)
        feeds = {
            "patches": np.zeros((16, 768), np.float32),
            "pos": np.zeros((16, toy.DIMS["E"]), np.float32),
            "mask": np.zeros((1, 16), np.float32),
        }
        content = engine.run("vision", feeds)["content"]
        array.copy_rows(0, content, 0, 4)
        array.write(4, np.zeros((4, toy.DIMS["C"]), np.float32))
        engine.extend(cache, 0, [8], array, *toy.rows(8)[1:], [[7]])
        one_token(engine, cache)
        array.close()
        cache.close()

    page()
    machine.counters.clear()
    live = machine.live_bytes
    for _ in range(5):
        page()
    assert (machine.counters.allocations, machine.counters.host_allocations) == (0, 0)
    assert machine.live_bytes == live


def test_weights_are_on_the_device_once(engine: AclEngine, machine: Any) -> None:
    """One model for prefill, decoding and drafts: loaded once, whatever gears run."""
    assert machine.counters.calls["acl.mdl.load_from_file"] == 2  # vision and llm


def test_a_short_draft_brings_back_only_the_logits_of_its_rows(
    engine: AclEngine, warm: Any, machine: Any
) -> None:
    machine.counters.clear()
    engine.extend(warm, 0, [2], *toy.rows(2), [[0, 1]])
    assert machine.counters.bytes["d2h"] == 2 * toy.DIMS["V"] * ITEM


def test_the_released_shape_keeps_every_bound(machine: Any, tmp_path: Path) -> None:
    """The exact rows of `bench.py acl`, on inputs, outputs and gears of the released model."""
    machine.null_compute = True
    bundle = hollow_bundle(tmp_path)
    with AclEngine.open(bundle, acl=ACL) as engine:
        rows = list(counts(engine, bundle, hollow=True))
    assert [row for row in rows if row.ok is False] == []
    assert sum(row.ok is True for row in rows) == 7


@pytest.mark.slow
def test_two_thousand_pages_leave_memory_as_it_was(engine: AclEngine, machine: Any) -> None:
    def page() -> None:
        cache = engine.kv_cache(1, 60)
        toy.greedy(engine, cache, 0, 4)
        cache.close()

    for _ in range(200):
        page()
    machine.counters.clear()
    live, before = machine.live_bytes, reset_peak()
    for _ in range(2000):
        page()
    grown = peak() - before
    assert machine.counters.allocations == 0
    assert machine.live_bytes == live
    assert grown < 2 << 20  # about one KiB a page
