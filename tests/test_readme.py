"""Every command of the README runs, and prints what the README says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rapidocr", reason="the README's first commands use the embedded reader")

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
# The test command of the README is what runs this test.
OWN = "scripts/test.sh"


def _sessions() -> list[list[tuple[str, str]]]:
    """The console blocks: (command, expected output or "") in order."""
    sessions = []
    for block in re.findall(r"```console\n(.*?)```", README, re.S):
        steps = re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.M)
        sessions.append(steps)
    return sessions


SESSIONS = _sessions()
# Exporting compares every compiled size with the original: minutes.
LONG = [pytest.mark.slow, pytest.mark.timeout(3000)]
CASES = [
    pytest.param(s, id=s[0][0][:40], marks=LONG if any("hyocr export" in c for c, _ in s) else [])
    for s in SESSIONS
]


def _environment(tmp_path: Path) -> dict[str, str]:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "atc").symlink_to(ROOT / "tests" / "pyacl_emulator" / "atc")
    for name, module in (("hyocr", "-m ascend.cli"), ("python", "")):
        script = bin_folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HYOCR_VENV": sys.prefix,
        "HYOCR_ACL": "tests.pyacl_emulator",
        "HYOCR_EMULATOR_PYTHON": sys.executable,
    }


def test_there_is_something_to_run() -> None:
    assert sum(map(len, SESSIONS)) >= 15


@pytest.mark.parametrize("session", CASES)
def test_the_commands_run_and_print_what_is_shown(
    session: list[tuple[str, str]], tmp_path: Path
) -> None:
    environment = _environment(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("scripts", "tests"):
        (work / name).symlink_to(ROOT / name)
    (work / "out").mkdir()
    for command, shown in session:
        if command == OWN:
            continue
        done = subprocess.run(
            command, shell=True, cwd=work, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if shown:
            assert done.stdout == shown, command


def test_the_python_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("24.80 ((")


def test_the_task_table_is_the_tasks_own(capsys: pytest.CaptureFixture[str]) -> None:
    from ascend.cli import main

    main(["tasks", "--markdown"])
    shown = re.search(r"<!-- tasks -->\n(.*?)<!-- /tasks -->", README, re.S)
    assert shown and shown.group(1) == capsys.readouterr().out


def test_every_command_of_the_program_is_mentioned() -> None:
    from ascend.cli import COMMANDS

    missing = [name for name in COMMANDS if f"hyocr {name}" not in README]
    assert not missing
