"""The table of signatures is the module: every name, its arity, its types, nothing else."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests import pyacl_emulator
from tests.pyacl_emulator.binding import FUNCTIONS, SIGNATURES

CORE = [name for name, entry in SIGNATURES.items() if entry["priority"] == "core"]
EXAMPLES = {"int": 0, "str": "", "float": 0.0, "list": [], "dict": {}, "tuple": (), "bytes": b"",
            "object": None, "callable": print, "callable|None": None, "int|str": 0}  # fmt: skip


def lookup(name: str) -> object:
    thing: object = pyacl_emulator
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


def test_every_documented_function_exists() -> None:
    assert not [name for name in SIGNATURES if not callable(lookup(name))]


def test_the_inference_functions_are_all_there() -> None:
    assert len(CORE) >= 147
    assert not [name for name in CORE if name not in FUNCTIONS]


def refuses(name: str, values: list[object]) -> bool:
    """True when the parser refuses the arguments as that of the C extension does."""
    try:
        lookup(name)(*values)  # type: ignore[operator]
    except TypeError as error:
        return str(error) == f"{name} args parse failed"
    return False


def test_wrong_arity_is_a_type_error(acl: ModuleType) -> None:
    for name in CORE:
        kinds = SIGNATURES[name]["args"]
        values = [EXAMPLES.get(kind, 0) for kind in kinds]
        if kinds:
            assert refuses(name, [*values, 0]), name
        if kinds and not SIGNATURES[name]["optional"]:
            assert refuses(name, values[:-1]), name


@pytest.mark.parametrize("wrong", [None, "1", 1.5])
def test_a_wrong_type_is_a_type_error(wrong: object, acl: ModuleType) -> None:
    for name in CORE:
        kinds = SIGNATURES[name]["args"]
        if "int" in kinds:
            values = [EXAMPLES.get(kind, 0) for kind in kinds]
            values[kinds.index("int")] = wrong
            assert refuses(name, values), name


def test_there_are_no_keyword_arguments(ready: ModuleType) -> None:
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        ready.rt.malloc(size=16, policy=0)


def test_functions_without_arguments_ignore_what_they_are_given(ready: ModuleType) -> None:
    assert ready.rt.get_device(0) == (0, 0)
    assert ready.rt.synchronize_device(0) == 0


@pytest.mark.parametrize("name", ["rt.get_soc_name", "rt.memcpy3d", "mdl.run", "ACL_FLOAT"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError):
        lookup(f"acl.{name}")


def test_results_are_plain_python_values(ready: ModuleType) -> None:
    pointer, ret = ready.rt.malloc(10, 0)
    assert type(pointer) is int
    assert type(ret) is int
    assert ready.rt.free(pointer) == 0


def test_it_can_be_imported_as_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["acl", *(f"acl.{part}" for part in ("rt", "mdl", "util", "prof", "op", "media"))]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    pyacl_emulator.install_as_acl()
    import acl
    import acl.mdl
    import acl.rt

    assert acl.get_soc_name() == "Ascend310P3"
    assert acl.rt is sys.modules["acl.rt"]
    assert "bytes_to_ptr" in dir(acl.util)
    for name in [key for key in sys.modules if key == "acl" or key.startswith("acl.")]:
        monkeypatch.delitem(sys.modules, name)
