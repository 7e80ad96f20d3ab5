"""May a bundle run here? Its chip, its files and its parity, before anything is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from acl_runtime.binding import Binding
from acl_runtime.errors import BundleRefused
from atc_configs.manifest import Manifest, read_manifest


def check_bundle(folder: Path, manifest: Manifest, binding: Binding, force: bool) -> None:
    """Raises BundleRefused if the files are not whole, not for this chip, or below their bound."""
    have = binding.soc_name()
    if manifest.soc != have:
        raise BundleRefused(
            f"{folder}: compiled for {manifest.soc}, this device is {have}; compile it for this"
            f" chip: hyocr compile DIR --soc {have}"
        )
    for name, graph in manifest.graphs.items():
        path = folder / graph.file
        size = path.stat().st_size if path.is_file() else None
        if size != graph.size:
            raise BundleRefused(
                f"{path}: {'missing' if size is None else f'{size} bytes'}, the manifest says"
                f" {graph.size} bytes for graph {name}; copy the bundle again"
            )
    if manifest.parity_passed is False and not force:
        figures = {n: dict(g.parity) for n, g in manifest.graphs.items() if g.parity}
        raise BundleRefused(
            f"{folder}: its answers differ too much from the CPU's ({figures}); see `hyocr parity`,"
            " keep more nodes in fp32, or force it"
        )


def verify_files(bundle: str | Path) -> None:
    """Compares every compiled file with its SHA-256. Raises BundleRefused naming the first."""
    folder = Path(bundle)
    for graph in read_manifest(folder).graphs.values():
        digest = hashlib.sha256()
        with (folder / graph.file).open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        if digest.hexdigest() != graph.sha256:
            raise BundleRefused(f"{folder / graph.file}: damaged; copy the bundle again")
