"""The toy bundle, compiled once, and its engine on the emulated machine."""

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
def engine(machine: Any, bundle: Path) -> Iterator[AclEngine]:
    with AclEngine.open(bundle, acl=ACL) as opened:
        yield opened
