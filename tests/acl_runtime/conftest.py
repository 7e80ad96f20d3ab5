"""An emulated machine per test, and the toy bundle compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acl_runtime.engine import AclEngine
from tests.acl_runtime import toy

ACL = "tests.pyacl_emulator"


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.bundle(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="session")
def half_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.bundle(tmp_path_factory.mktemp("half"), precision="float16")


@pytest.fixture
def machine() -> Iterator[Any]:
    """A fresh emulated machine; at the end nothing may be alive and no rule broken."""
    from tests.pyacl_emulator import control

    control.reset(time_scale=0.0)
    yield control
    left = (control.live_handles, control.live_bytes, control.violations, control.leaks)
    control.reset()
    assert left == (0, 0, [], [])


@pytest.fixture
def engine(machine: Any, bundle: Path) -> Iterator[AclEngine]:
    with AclEngine.open(bundle, acl=ACL) as opened:
        yield opened
