"""The stand-in for `atc`: checks a command line as the compiler does and writes an `.om`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from . import onnx_file
from .atc_messages import EXIT_FAILURE, FAILURE, START, SUCCESS, AtcError
from .atc_operators import check_operators
from .atc_options import (
    InputShape,
    UnknownOption,
    check_gears,
    check_required,
    check_values,
    parse_arguments,
    parse_gears,
    parse_input_shape,
    precision_of,
)
from .chips import CHIPS
from .compile import Request, compile_model
from .onnx_file import inputs_of, shape_of
from .shapes import DynamicShapeError

HELP = """usage: atc <args>
generate offline model example:
atc --model=./alexnet.onnx --framework=5 --output=./domi --soc_version=<soc_version>
"""


def _shapes(model: object, given: InputShape) -> InputShape:
    """Every input's shape: from the option, else from the model."""
    graph = model.graph  # type: ignore[attr-defined]
    names = [value.name for value in inputs_of(graph)]
    for name in given.shapes:
        if name not in names:
            raise AtcError("E10016", name, "input_shape")
    shapes = {}
    for value in inputs_of(graph):
        known = shape_of(value)
        if value.name in given.shapes:
            shape = given.shapes[value.name]
            if known is not None and len(known) != len(shape):
                reason = f"input [{value.name}] has {len(known)} dims in the model."
                raise AtcError("E10001", shape, "input_shape", reason)
            if known is not None:
                for have, want in zip(known, shape, strict=True):
                    if isinstance(have, int) and have > 0 and want not in (-1, have):
                        reason = f"input [{value.name}] has the fixed shape {known} in the model."
                        raise AtcError("E10001", shape, "input_shape", reason)
        else:
            shape = tuple(d if isinstance(d, int) and d > 0 else -1 for d in known or [])
        shapes[value.name] = shape
    return InputShape(shapes, given.ranges)


def _kept(options: dict[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """(node names, operator types) of --keep_dtype."""
    path = options.get("keep_dtype")
    if not path:
        return frozenset(), frozenset()
    lines = [line.strip() for line in Path(path).read_text().splitlines() if line.strip()]
    types = {line.partition("::")[2] for line in lines if line.startswith("OpType::")}
    return frozenset(line for line in lines if not line.startswith("OpType::")), frozenset(types)


def _request(options: dict[str, str], command: str) -> Request:
    kind, gears = parse_gears(options)
    given = parse_input_shape(options.get("input_shape", ""))
    layout = options.get("input_format", "NCHW")
    check_gears(kind, gears, given, layout)
    path = Path(options["model"])
    try:
        model = onnx_file.load(path)
    except FileNotFoundError:
        raise AtcError("E10041", path) from None
    except Exception as error:  # the protobuf parser raises several types, none of them public
        raise AtcError("E10041", path, trace=str(error)) from error
    if not model.graph.node:
        raise AtcError("E16004" if not model.HasField("graph") else "E16001", "output")
    check_operators(model, options["soc_version"])
    shape = _shapes(model, given)
    if kind == "static" and (shape.dynamic or given.ranges):
        kind = "range"
        if CHIPS[options["soc_version"]].short == "310B":
            raise AtcError("E10055", "dynamic shape without profiles is not supported on 310B.")
    elif kind != "static":
        check_gears(kind, gears, shape, layout)
    names = {node.name for node in model.graph.node}
    keep, keep_types = _kept(options)
    for name in sorted(keep - names):
        raise AtcError("E10016", name, "keep_dtype")
    aipp = None
    if options.get("insert_op_conf"):
        from .aipp import parse_aipp

        aipp = parse_aipp(Path(options["insert_op_conf"]).read_text())
    return Request(
        path, _output_path(options["output"]), options["soc_version"], shape.shapes, kind, gears,
        "ND" if kind == "dims" else layout, precision_of(options), keep, keep_types,
        options.get("output_type", ""), shape.ranges, aipp, command,
    )  # fmt: skip


def _output_path(prefix: str) -> Path:
    path = Path(prefix if prefix.endswith(".om") else prefix + ".om")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AtcError("E10001", prefix, "output", f"{error.strerror}.") from error
    if not os.access(path.parent, os.W_OK):
        raise AtcError("E10001", prefix, "output", "The path is not writable.")
    return path


def _build(options: dict[str, str], command: str) -> None:
    check_required(options)
    check_values(options)
    request = _request(options, command)
    try:
        compile_model(request)
    except DynamicShapeError as error:
        raise AtcError("E10055", f"profiles need static intermediate shapes: {error}.") from error
    except OSError as error:
        raise AtcError("E19999", trace=f"write {request.output}: {error.strerror}") from error


def _info(options: dict[str, str]) -> None:
    from .atc_info import model_information

    path = options.get("om")
    if not path:
        raise AtcError("E10004", "om")
    print(model_information(path), flush=True)


def main(arguments: list[str]) -> int:
    """Runs the compiler; 0 or 255."""
    try:
        options = parse_arguments(arguments)
    except UnknownOption as error:
        print(f"atc: unrecognized option '--{error}'", file=sys.stderr)
        print(FAILURE, flush=True)
        return EXIT_FAILURE
    except AtcError as error:
        print(f"{START}\n{FAILURE}\n{error.text()}", flush=True)
        return EXIT_FAILURE
    if "help" in options or not arguments:
        print(HELP)
        return 0
    print(START, flush=True)
    try:
        mode = options.get("mode", "0")
        if mode == "6":
            _info(options)
        elif mode == "0":
            _build(options, shlex.join(["atc", *arguments]))
        else:
            raise AtcError("E10001", mode, "mode", "The stand-in supports modes 0 and 6.")
    except AtcError as error:
        print(f"{FAILURE}\n{error.text()}", flush=True)
        return EXIT_FAILURE
    print(SUCCESS, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
