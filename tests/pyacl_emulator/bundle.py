"""Bundles: one `.om` with several models; and the dump switches, which only keep their state."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from . import om
from .binding import api, code
from .context import current
from .machine import MACHINE
from .model import BAD_DATA, BAD_PATH, forget, load

INVALID = code("INVALID_PARAM")
BAD_BUNDLE = code("INVALID_BUNDLE_MODEL_ID")


@dataclass(slots=True, eq=False)
class Bundle:
    """Ids of the models that a bundle loaded."""

    models: list[int]


def write_bundle(path: Path, models: list[Path]) -> None:
    """Packs whole `.om` files behind one header of type bundle."""
    parts = [file.read_bytes() for file in models]
    body = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    header = om.pack_header(path.stem, "", len(body), dynamic=False, models=len(parts),
                            modeltype=om.BUNDLE)  # fmt: skip
    path.write_bytes(header + body)


def _members(path: str) -> list[om.OmFile] | int:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return MACHINE.report(BAD_PATH, f"E13000: Path[{path}] is invalid: {error.strerror}")
    try:
        count = om.bundle_count(data)
        members, at = [], om.HEADER_BYTES
        for index in range(count):
            (size,) = struct.unpack_from("<Q", data, at)
            members.append(om.parse(data[at + 8 : at + 8 + size], (hash(path), index, size, -1)))
            at += 8 + size
    except (om.OmError, struct.error) as error:
        return MACHINE.report(BAD_DATA, f"E10001: [{path}] Invalid om file. {error}")
    return members


@api("acl.mdl.bundle_load_from_file")
def bundle_load_from_file(path: str) -> tuple[int, int]:
    """(bundle id, 0): loads every model of a bundle."""
    context = current()
    if isinstance(context, int):
        return 0, context
    members = _members(path)
    if isinstance(members, int):
        return 0, members
    bundle = Bundle([])
    for member in members:
        model_id, problem = load(member)
        if problem:
            _drop(bundle)
            return 0, problem
        bundle.models.append(model_id)
    bundle_id = MACHINE.next_model_id
    MACHINE.next_model_id += 1
    MACHINE.bundles[bundle_id] = bundle
    for model_id in bundle.models:
        MACHINE.models[model_id].bundle = bundle_id
    return bundle_id, 0


def _drop(bundle: Bundle) -> None:
    for model_id in bundle.models:
        model = MACHINE.models.get(model_id)
        if model is not None:
            forget(model)


@api("acl.mdl.bundle_get_model_num")
def bundle_get_model_num(bundle_id: int) -> tuple[int, int]:
    """(models, 0)."""
    bundle = MACHINE.bundles.get(bundle_id)
    return (0, BAD_BUNDLE) if bundle is None else (len(bundle.models), 0)


@api("acl.mdl.bundle_get_model_id")
def bundle_get_model_id(bundle_id: int, index: int) -> tuple[int, int]:
    """(id of one model, 0)."""
    bundle = MACHINE.bundles.get(bundle_id)
    if bundle is None:
        return 0, BAD_BUNDLE
    if not 0 <= index < len(bundle.models):
        return 0, INVALID
    return bundle.models[index], 0


@api("acl.mdl.bundle_unload")
def bundle_unload(bundle_id: int) -> int:
    """Unloads every model of a bundle."""
    bundle = MACHINE.bundles.pop(bundle_id, None)
    if bundle is None:
        return BAD_BUNDLE
    _drop(bundle)
    return 0


@api("acl.mdl.init_dump")
def init_dump() -> int:
    """Starts dumping; 100044 when it runs already."""
    if MACHINE.dumping:
        return code("DUMP_ALREADY_RUN")
    MACHINE.dumping = True
    return 0


@api("acl.mdl.set_dump")
def set_dump(config_path: str) -> int:
    """Reads a dump configuration, after init_dump."""
    if not MACHINE.dumping:
        return code("DUMP_NOT_RUN")
    return 0 if Path(config_path).is_file() else code("INVALID_FILE")


@api("acl.mdl.finalize_dump")
def finalize_dump() -> int:
    """Stops dumping; 100045 when it does not run."""
    if not MACHINE.dumping:
        return code("DUMP_NOT_RUN")
    MACHINE.dumping = False
    return 0
