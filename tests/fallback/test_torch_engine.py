"""The engine protocol on PyTorch: slots, precisions, wrong calls."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fallback.checkpoint import Checkpoint
from fallback.chunk import causal_mask
from fallback.errors import EngineUnavailableError, GraphInputError
from fallback.host_array import HostArray
from fallback.kernels import PRECISIONS, Int8Linear, has_bf16_instructions, linear_for
from fallback.torch_engine import TorchEngine, TorchKVCache
from scripts.make_checkpoint import TINY, write_checkpoint
from tests.fallback.token_rows import rows
from tests.peak import peak, reset_peak

COUNTS = (9, 3, 0, 5)


@pytest.fixture(scope="module")
def engine(tiny: Checkpoint) -> TorchEngine:
    return TorchEngine.open(tiny, "fp32", threads=1)


def last(counts: Sequence[int]) -> list[list[int]]:
    return [[max(count - 1, 0)] for count in counts]


def test_four_sequences_at_once_give_what_each_gives_alone(engine: TorchEngine) -> None:
    together = engine.kv_cache(4, 16)
    prompt, step = rows(1, 4, 9), rows(2, 4, 1)
    first = engine.extend(together, 0, COUNTS, *prompt, last(COUNTS))
    moving = [int(count > 0) for count in COUNTS]
    second = engine.extend(together, 0, moving, *step, [[0]] * 4)
    assert together.lengths.tolist() == [10, 4, 0, 6]
    for b in (0, 1, 3):
        alone = engine.kv_cache(1, 16)
        count = COUNTS[b]
        mine = tuple(part[b : b + 1, :count] for part in prompt)
        want = engine.extend(alone, 0, [count], *mine, [[count - 1]])
        np.testing.assert_allclose(first[b], want[0], atol=1e-4)
        want = engine.extend(alone, 0, [1], *(part[b : b + 1] for part in step), [[0]])
        np.testing.assert_allclose(second[b], want[0], atol=1e-4)


@pytest.mark.parametrize("precision", ["int8", "int4", "bf16"])
def test_a_row_of_a_batch_has_the_same_bits_as_alone(tiny: Checkpoint, precision: str) -> None:
    """Else rounding to codes makes last bits into other tokens, and an answer depends on who else
    is being read."""
    if precision == "bf16" and has_bf16_instructions():
        pytest.skip("bf16 instructions: one row and several have different kernels")
    with TorchEngine.open(tiny, precision, threads=1) as engine:
        counts, prompt = (70, 3, 1, 5), rows(1, 4, 70)
        together, steps = engine.kv_cache(4, 90), [rows(seed, 4, 1) for seed in range(2, 8)]
        first = [tuple(part[b : b + 1, :n] for part in prompt) for b, n in enumerate(counts)]
        for b, count in enumerate(counts):
            engine.extend(together, b, [count], *first[b], [[]])
        batch = [engine.extend(together, 0, [1] * 4, *step, [[0]] * 4) for step in steps]
        for b, count in enumerate(counts):
            alone = engine.kv_cache(1, 90)
            engine.extend(alone, 0, [count], *first[b], [[]])
            for step, logits in zip(steps, batch, strict=True):
                mine = tuple(part[b : b + 1] for part in step)
                want = engine.extend(alone, 0, [1], *mine, [[0]])
                np.testing.assert_array_equal(logits[b], want[0])


def test_a_truncated_slot_goes_on_as_if_the_rows_had_never_been(engine: TorchEngine) -> None:
    cache = engine.kv_cache(2, 16)
    prompt, wrong, right = rows(3, 1, 6), rows(4, 1, 4), rows(5, 1, 1)
    engine.extend(cache, 1, [6], *prompt, [[5]])
    want = engine.extend(cache, 1, [1], *right, [[0]])
    cache.truncate(1, 6)
    engine.extend(cache, 1, [4], *wrong, [[0, 1, 2, 3]])
    cache.truncate(1, 6)
    np.testing.assert_array_equal(engine.extend(cache, 1, [1], *right, [[0]]), want)
    with pytest.raises(GraphInputError, match="slot 1 holds 7 rows, not 8"):
        cache.truncate(1, 8)


def test_several_rows_of_a_draft_are_scored_at_once(engine: TorchEngine) -> None:
    prompt = rows(6, 1, 5)
    one_by_one, at_once = engine.kv_cache(1, 8), engine.kv_cache(1, 8)
    want = [
        engine.extend(one_by_one, 0, [1], *(part[:, i : i + 1] for part in prompt), [[0]])[0, 0]
        for i in range(5)
    ]
    got = engine.extend(at_once, 0, [5], *prompt, [[0, 1, 2, 3, 4]])[0]
    np.testing.assert_allclose(got, np.stack(want), atol=1e-4)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_decoding_moves_no_cache_and_keeps_no_tensor(tiny: Checkpoint, precision: str) -> None:
    with TorchEngine.open(tiny, precision, threads=1) as engine:
        cache = engine.kv_cache(1, 64)
        engine.extend(cache, 0, [4], *rows(7, 1, 4), [[3]])
        step = rows(8, 1, 1)
        engine.extend(cache, 0, [1], *step, [[0]])
        address, alive = np.asarray(cache.keys).ctypes.data, count_tensors()
        for _ in range(50):
            engine.extend(cache, 0, [1], *step, [[0]])
        assert np.asarray(cache.keys).ctypes.data == address
        assert count_tensors() == alive


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_cache_takes_no_memory_before_it_is_used(tiny: Checkpoint, precision: str) -> None:
    with TorchEngine.open(tiny, precision, threads=1) as engine:
        before = reset_peak()
        cache = engine.kv_cache(64, 4096)  # 67 MB
        prompt = rows(7, 1, 100)
        for slot in range(64):
            engine.extend(cache, slot, [100], *prompt, [[99]])
        assert peak() - before < 20e6


def count_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


def test_the_graph_by_its_contract_is_the_same_step(engine: TorchEngine) -> None:
    embeds, cos, sin = rows(9, 1, 3)
    cache = engine.kv_cache(1, 4)
    want = engine.extend(cache, 0, [3], embeds, cos, sin, [[2]])
    past = np.full((1, 2, TINY.text.kv_width), 7, np.float32)  # two rows, both masked
    inputs = {"embeds": HostArray(embeds), "cos": cos, "sin": sin}
    inputs |= {"past_mask": np.full((1, 1, 2), -1e4, np.float32)}
    inputs |= {"chunk_mask": causal_mask(3)[None], "select": np.eye(3, dtype=np.float32)[None, 2:]}
    inputs |= {f"past_{side}.{i}": past for side in ("key", "value") for i in range(2)}
    got = engine.run("llm", inputs)
    np.testing.assert_allclose(got["logits"].numpy(), want, atol=1e-4)
    np.testing.assert_allclose(got["new_value.1"].numpy()[0], cache.values[1, 0, :3], atol=1e-4)
    with pytest.raises(
        GraphInputError, match=r"llm: missing inputs \['cos'\], unknown inputs \[\]"
    ):
        engine.run("llm", {name: value for name, value in inputs.items() if name != "cos"})


# Relative error of logits against fp32 after one prefill; about twice what was measured.
COST = {"bf16": 0.02, "int8": 0.07, "int4": 0.6}


@pytest.mark.parametrize("precision", COST)
def test_a_precision_stays_within_its_cost(
    tiny: Checkpoint, engine: TorchEngine, precision: str
) -> None:
    prompt, step = rows(10, 1, 6), rows(11, 1, 1)
    logits = []
    with TorchEngine.open(tiny, precision, threads=1) as other:
        assert other.settings["precision"] == precision
        for used in (engine, other):
            cache = used.kv_cache(1, 8)
            first = used.extend(cache, 0, [6], *prompt, [[5]])
            second = used.extend(cache, 0, [1], *step, [[0]])
            assert used.extend(cache, 0, [1], *step, [[]]).shape == (1, 0, TINY.text.vocab)
            logits.append(np.concatenate([first, second]))
    error = np.linalg.norm(logits[1] - logits[0]) / np.linalg.norm(logits[0])
    assert 0 < error < COST[precision]


def test_one_loud_token_does_not_silence_the_others() -> None:
    rng = torch.Generator().manual_seed(0)
    weight, x = torch.randn(32, 64, generator=rng), torch.randn(5, 64, generator=rng)
    x[0] *= 1000
    linear = Int8Linear([weight], [torch.ones(32)])
    want = x @ weight.T + 1
    error = (linear(x) - want)[1:].norm() / want[1:].norm()
    assert error < 0.05


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("count", [1, 3])
def test_broken_numbers_stay_visible(precision: str, count: int) -> None:
    make = linear_for(precision)
    x = torch.ones(count, 128)
    x[0, 0] = torch.nan
    assert make([torch.ones(8, 128)], [])(x)[0].isnan().any()


def test_bf16_weights_are_the_checkpoints_mapping_and_not_a_copy(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY, seed=2, dtype=torch.bfloat16)
    checkpoint = Checkpoint(tmp_path)
    with TorchEngine.open(checkpoint, "bf16", threads=1) as engine:
        layer, head = engine._llm.layers[1], engine._llm.head  # addresses are not public
        for linear, name in (
            (layer.gate_up_proj, "model.layers.1.mlp.gate_proj.weight"),
            (head, "model.embed_tokens.weight"),
        ):
            assert linear.weights[0].data_ptr() == checkpoint.tensor(name).data_ptr()


def test_an_untied_head_is_used(tmp_path: Path) -> None:
    untied = replace(TINY, text=replace(TINY.text, tied=False))
    write_checkpoint(tmp_path, untied, seed=1)
    checkpoint = Checkpoint(tmp_path)
    engine = TorchEngine.open(checkpoint, "fp32", threads=1)
    head = engine._llm.head.weight  # no other way to see which one it is
    assert torch.equal(head, checkpoint.tensor("lm_head.weight"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda e, c: e.extend(c, 0, [9], *rows(0, 1, 9), [[8]]), "9 rows exceed the cache's 8"),
        (lambda e, c: e.extend(c, 2, [1], *rows(0, 1, 1), [[0]]), "slots 2..2: the cache has 2"),
        (lambda e, c: e.extend(c, 0, [2], *rows(0, 1, 1), [[0]]), r"counts \[2\] do not fit"),
        (lambda e, c: e.extend(c, 0, [1], *rows(0, 1, 1), [[1]]), "the chunk has 1 rows"),
        (lambda e, c: e.extend(c, 0, [1, 1], *rows(0, 2, 1), [[0], []]), "equally many rows"),
        (lambda e, c: e.run("det", {}), "no graph 'det' here"),
        (lambda e, c: e.kv_cache(0, 8), "at least one slot"),
        (lambda e, c: e.kv_cache(1, 5000), "at most 4096 rows, the model's context"),
        (
            lambda e, c: e.extend(c, 0, [1], rows(0, 1, 1)[0].astype(np.float64),
                                  *rows(0, 1, 1)[1:], [[0]]),
            "embeds: dtype float64, the graph wants float32",
        ),
    ],
)  # fmt: skip
def test_a_wrong_call_names_the_value_and_the_limit(engine: TorchEngine, call, said: str) -> None:
    cache = engine.kv_cache(2, 8)
    with pytest.raises(GraphInputError, match=said):
        call(engine, cache)
    assert isinstance(cache, TorchKVCache) and not cache.lengths.any()


def test_an_unknown_precision_and_a_closed_engine(tiny: Checkpoint) -> None:
    with pytest.raises(EngineUnavailableError, match="'int3' does not exist: one of auto, fp32"):
        TorchEngine.open(tiny, "int3")
    engine = TorchEngine.open(tiny, "fp32", threads=1)
    cache = engine.kv_cache(1, 4)
    engine.close()
    engine.close()
    with pytest.raises(EngineUnavailableError, match="closed"):
        engine.extend(cache, 0, [1], *rows(0, 1, 1), [[0]])
