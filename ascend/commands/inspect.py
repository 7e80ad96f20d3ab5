"""`hyocr inspect`: one screen about an .om, an .onnx, a bundle, an export or a checkpoint."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MOST_ROWS = 12
_MOST_CHARACTERS = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path)
    parser.add_argument("--json", action="store_true", help="everything, as JSON")


def run(args: argparse.Namespace) -> int:
    from ascend.build.inspection import inspect

    facts = inspect(args.path)
    if args.json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
    else:
        print("\n".join(_lines(facts, "")))
    return 0


def _lines(facts: Mapping[str, Any], indent: str) -> Iterator[str]:
    """`name  value` rows; lists of tensors and gears one a row, cut where they grow long."""
    for name, value in facts.items():
        if value is None or value == [] or value == {}:
            yield f"{indent}{name:<16} -"
        elif isinstance(value, Mapping) and _is_flat(value):
            yield f"{indent}{name:<16} {', '.join(f'{k} {_word(k, v)}' for k, v in value.items())}"
        elif isinstance(value, Mapping):
            yield f"{indent}{name}"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and isinstance(value[0], Mapping):
            yield from _table(name, value, indent)
        elif isinstance(value, list):
            yield f"{indent}{name:<16} {_cut(', '.join(map(str, value)))}"
        else:
            yield f"{indent}{name:<16} {_word(name, value)}"


def _table(name: str, rows: list[Mapping[str, Any]], indent: str) -> Iterator[str]:
    shown = rows if len(rows) <= _MOST_ROWS else [*rows[: _MOST_ROWS - 2], rows[-1]]
    for number, row in enumerate(shown):
        cells = "  ".join(_cell(key, value) for key, value in row.items())
        yield f"{indent}{name if number == 0 else '':<16} {cells}"
        if len(shown) < len(rows) and number == len(shown) - 2:
            yield f"{indent}{'':<16} ... {len(rows) - len(shown)} more"


def _cell(key: str, value: Any) -> str:
    if key in ("name", "dtype", "kind"):
        return f"{value:<16}"
    if key == "shape":
        return f"({', '.join(map(str, value))})"
    return _word(key, value) if key.endswith("bytes") else f"{key}={value}"


def _word(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value / 2**20:.1f} MiB" if value >= 2**20 else f"{value} B"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _cut(str(value))


def _cut(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}... (--json shows all {len(text)} characters)"


def _is_flat(value: Mapping[str, Any]) -> bool:
    return all(not isinstance(item, (Mapping, list)) for item in value.values())
