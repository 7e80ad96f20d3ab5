"""The work folder of a bundle: what is finished in it, for one process at a time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ascend.build.digests import file_sha256
from ascend.errors import ModelError
from atc_configs.manifest import GraphFile, Manifest

_PROGRESS = "progress.json"
_LOCK = "lock"


class Progress:
    """Which graphs of a stage are finished, and from what; survives the process."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._path = stage / _PROGRESS
        try:
            self._rows: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            self._rows = {}

    def get(self, name: str, key: str) -> GraphFile | None:
        """The file made for `key` and still as it was made, or None."""
        row = self._rows.get(name)
        if row is None or row["key"] != key:
            return None
        file = GraphFile(**{**row["file"], "command": tuple(row["file"]["command"]),
                            "kept": tuple(row["file"]["kept"])})  # fmt: skip
        path = self._stage / file.file
        whole = path.is_file() and path.stat().st_size == file.size
        return file if whole and file_sha256(path) == file.sha256 else None

    def add(self, name: str, key: str, file: GraphFile) -> None:
        """Remember that graph `name` was compiled from `key`."""
        row = {slot: getattr(file, slot) for slot in file.__slots__}
        self._rows[name] = {"key": key, "file": row}
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self._rows), "utf-8")
        partial.replace(self._path)


def stage_of(out: Path) -> Path:
    """The folder in which the bundle `out` is made."""
    return out.resolve().with_name(f"{out.name}.partial")


@contextmanager
def locked_stage(out: Path) -> Iterator[Path]:
    """The work folder, for one process at a time. If the work fails it stays to be resumed."""
    stage = stage_of(out)
    stage.mkdir(parents=True, exist_ok=True)
    with (stage / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ModelError(f"{stage}: another process is compiling here; wait for it") from error
        yield stage


def publish(stage: Path, out: Path, manifest: Manifest) -> None:
    """Leaves in the stage what belongs to a bundle, and gives it the bundle's name."""
    wanted = {graph.file for graph in manifest.graphs.values()} | set(manifest.files.values())
    for path in stage.iterdir():
        if path.name not in wanted and path.name != _LOCK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (stage / _LOCK).unlink()
    manifest.write(stage)
    if out.exists():
        old = out.resolve().with_name(f"{out.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(out, old)
        os.replace(stage, out)
        shutil.rmtree(old)
    else:
        os.replace(stage, out)
