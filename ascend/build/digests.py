"""Digests of files, read in pieces."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE = 1 << 22


def file_sha256(*paths: Path) -> str:
    """SHA-256 of the files' bytes, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    return digest.hexdigest()
