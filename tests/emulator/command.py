"""Command lines of the compiler stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.conftest import WIDTH
from tests.pyacl_emulator.atc_main import main

FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information\n"


def line(source: Path, **changes: str | None) -> list[str]:
    """A command line that succeeds, with options added, changed or (None) left out."""
    options = {
        "model": str(source), "framework": "5", "output": str(source.parent / "out"),
        "soc_version": "Ascend310P3", "input_format": "ND", "input_shape": f"x:4,{WIDTH}",
    }  # fmt: skip
    options.update(changes)  # type: ignore[arg-type]
    return [f"--{name}={value}" for name, value in options.items() if value is not None]


def refusal(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The error block of a command line that must fail."""
    assert main(arguments) == 255
    printed = capsys.readouterr().out
    assert FAILED in printed
    return printed.split(FAILED)[1]
