"""The memory forecast against what the runtime takes of an emulated device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.engine import AclEngine
from ascend.memory_plan import forecast_memory
from atc_configs.contract import ContractError
from tests.acl_runtime import toy

ACL = "tests.pyacl_emulator"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.bundle(tmp_path_factory.mktemp("bundle"))


@pytest.mark.parametrize(("slots", "capacity"), [(1, 32), (1, 64), (4, 64), (2, 32)])
def test_the_cache_is_as_large_as_forecast(
    machine: Any, bundle: Path, slots: int, capacity: int
) -> None:
    plan = forecast_memory(toy.contract(), weights={}, work={}, slots=slots, capacity=capacity)
    with AclEngine.open(bundle, acl=ACL) as engine:
        assert engine.kv_cache(slots, capacity).nbytes == plan.parts["cache"]


def test_the_whole_of_a_used_engine_is_as_large_as_forecast(machine: Any, bundle: Path) -> None:
    from tests.pyacl_emulator import mdl

    spec = toy.contract().graph("vision")
    with AclEngine.open(bundle, acl=ACL) as engine:
        for gear in spec.gears:
            engine.run(
                "vision",
                {
                    name: np.zeros(shape, np.float32)
                    for name, shape in spec.input_shapes(gear).items()
                },
            )
        prompt = engine.empty((8, toy.DIMS["C"]), np.float32)
        cache = engine.kv_cache(4, 64)
        for count in (8, 4, 1, 40):
            engine.extend(cache, 0, [count], *toy.rows(count), [[count - 1]])
        engine.extend(cache, 0, [4], *toy.rows(4), [[0, 1, 2, 3]])
        four = [np.concatenate([part] * 4) for part in toy.rows(1)]
        engine.extend(cache, 0, [1] * 4, *four, [[0]] * 4)
        prompt.close()
        cache.close()
        sizes = {name: mdl.query_size(str(bundle / f"{name}.om")) for name in ("vision", "llm")}
    plan = forecast_memory(
        toy.contract(),
        weights={name: size[1] for name, size in sizes.items()},
        work={name: size[0] for name, size in sizes.items()},
        slots=4,
        capacity=64,
        prompt_rows=8,
    )
    taken = machine.counters.peak_device_bytes[0]
    assert abs(taken - plan.total) <= 0.05 * taken


def test_a_cache_beyond_the_gears_is_refused() -> None:
    with pytest.raises(ContractError, match="exceeds the gears"):
        forecast_memory(toy.contract(), weights={}, work={}, slots=9)
