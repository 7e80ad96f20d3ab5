"""The table of signatures is the module: every name, its arity, its types, nothing else."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import pyacl_emulator
from tests.pyacl_emulator.binding import CODES, FUNCTIONS, SIGNATURES

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


SPEC = (
    Path(os.environ.get("HYOCR_SPEC_DIR", Path(__file__).parents[3] / "shared" / "spec"))
    / "pyacl_api.json"
)
# Words of the reference -> those of the table, where they are not the same.
KINDS = {"any": "object", "None": "None", "list[int]": "list"}


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    if not SPEC.is_file():
        pytest.skip(f"no {SPEC.name} in {SPEC.parent}; name its folder in HYOCR_SPEC_DIR")
    read: dict[str, Any] = json.loads(SPEC.read_text("utf-8"))
    return read


def kind(text: str) -> str:
    """`int(ptr)`, `str|None`, `tuple[int,…] (list -> ValueError)` -> the parser's word."""
    if text in EXAMPLES:
        return text
    word = re.split(r"[ (|;]", KINDS.get(text, text))[0]
    return KINDS.get(word, word.split("[")[0])


def test_every_function_has_the_arguments_and_results_of_the_reference(
    reference: dict[str, Any],
) -> None:
    """In their order; pyACL takes positions only, so the names of arguments are not compared."""
    for function in reference["functions"]:
        results = [text.split(":") for text in function["returns"]]
        wanted = {
            "args": [kind(argument["type"]) for argument in function["args"]],
            "optional": sum(bool(argument.get("optional")) for argument in function["args"]),
            "returns": ["ret" if name == "ret" else kind(rest[-1] if rest else name)
                        for name, *rest in results],
            "priority": function["priority"],
        }  # fmt: skip
        ours = SIGNATURES[function["name"]]
        assert {key: ours[key] for key in wanted} == wanted, function["name"]
        held = bool(ours.get("releases_gil"))
        assert held == bool(function.get("releases_gil")), function["name"]
    names = {f["name"] for f in reference["functions"] if f["priority"] == "core"}
    assert len(names) >= 147 and names <= FUNCTIONS.keys()


def test_every_code_has_the_number_of_the_reference(reference: dict[str, Any]) -> None:
    numbers: dict[str, set[int]] = {}
    for row in reference["error_codes"]:
        numbers.setdefault(row["name"], set()).add(row["code"])
    known = CODES.keys() & numbers.keys()
    assert len(known) > 100
    assert not {name: CODES[name] for name in known if CODES[name] not in numbers[name]}
