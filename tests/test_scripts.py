"""The set-up scripts where something is missing: a plain sentence, no trace."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ("bash", "dirname", "cksum", "cat", "env")


def _read(path: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": os.environ.get("HOME", "/"), **extra}
    command = [str(ROOT / "scripts" / "read.sh"), "page.png"]
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH that holds the shell's tools and no Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or pytest.skip(f"no {name} here"))
    return folder


def test_without_python_the_script_says_so(tools: Path, tmp_path: Path) -> None:
    done = _read(tools, HYOCR_VENV=str(tmp_path / "venv"))
    assert done.returncode == 5 and done.stdout == ""
    assert "No Python 3.10 to 3.14 was found" in done.stderr


def test_without_a_network_the_script_says_so(tmp_path: Path) -> None:
    done = _read(
        Path(os.environ["PATH"]),
        HYOCR_VENV=str(tmp_path / "venv"),
        PIP_INDEX_URL="http://127.0.0.1:1/",
        PIP_RETRIES="0",
        PIP_CONFIG_FILE=os.devnull,
        PIP_FIND_LINKS="",
        PIP_NO_CACHE_DIR="1",
    )
    assert done.returncode == 5 and done.stdout == ""
    assert "Is the network reachable?" in done.stderr
    assert not list((tmp_path / "venv").glob(".hyocr-*"))
