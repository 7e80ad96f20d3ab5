"""Read text as the value that a field's spec asks for, or refuse it: nothing is guessed.

"1,234.50" is a number, "12a" and "8.5%" are not; "31/12/2024" is a date, "03/04/2024" (March or
April?) is not. What is refused becomes None, and the notice says why; the caller keeps the text.
"""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from host_pipeline.parse.fields_schema import FieldSpec
from host_pipeline.result import Notice

_CURRENCY = r"(?:RMB|CNY|USD|EUR|GBP|JPY|HKD|SGD|MYR|RM|HK\$|US\$|S\$|NT\$|[¥$€£₩₹]|元|圆)"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−]?)\s*{_CURRENCY}?\s*(?P<sign2>[-−]?)"
    rf"(?P<digits>[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    rf"\s*{_CURRENCY}?",
    re.IGNORECASE,
)
_YEAR_FIRST = re.compile(r"([0-9]{4})\s*[-/.年]\s*([0-9]{1,2})\s*[-/.月]\s*([0-9]{1,2})\s*日?")
_COMPACT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})")
_YEAR_LAST = re.compile(r"([0-9]{1,2})\s*[-/.]\s*([0-9]{1,2})\s*[-/.]\s*([0-9]{4})")
_DAY_NAME = re.compile(r"([0-9]{1,2})[\s\-./]*([A-Za-z]{3,9})[\s\-./,]*([0-9]{4})")
_NAME_DAY = re.compile(r"([A-Za-z]{3,9})[\s.]*([0-9]{1,2})\s*,?\s*([0-9]{4})")
_TIME = re.compile(r"[T\s]+[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?\s*(?:[AP]M)?\s*$", re.IGNORECASE)
_MONTHS = (
    "january february march april may june july august september october november december"
).split()
_TRUE = frozenset("true yes y 是 有 ☑ ✓ √ ✔".split())
_FALSE = frozenset("false no n 否 无 ☐ □ ✗ × ✘".split())
_MAX_DIGITS = 300  # past that a float is infinite, and int() refuses at 4300


class _Refused(Exception):
    """Internal: the text is not such a value; carries the reason."""


def check_value(spec: FieldSpec, value: Any) -> tuple[Any, Notice | None]:
    """`value` (text, or decoded JSON) as `spec` wants it, and what was done to it.

    (None, None) for nothing (null, blank); (None, notice `value_refused`) for what is not such a
    value; (v, notice `value_converted`) where the form changed; (v, None) where it fits as it is.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return None, None
    notes: list[str] = []
    try:
        found = _READERS[spec.type](spec, value, notes)
        _check_limits(spec, found)
    except _Refused as reason:
        text = f"{spec.name}: {_short(value)} is refused: {reason}"
        return None, Notice("value_refused", text)
    found = _from_enum(spec, found)
    given = value.strip() if isinstance(value, str) else value
    if found != given or type(found) is not type(given):
        notes.insert(0, f"{_short(value)} read as {_short(found)}")
    if notes:
        return found, Notice("value_converted", f"{spec.name}: {'; '.join(notes)}")
    return found, None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


def _string(spec: FieldSpec, value: Any, notes: list[str]) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise _Refused(f"a {type(value).__name__} is no text")


def _number(spec: FieldSpec, value: Any, notes: list[str]) -> float | int:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise _Refused("it is not finite")
        return value
    if not isinstance(value, str):
        raise _Refused(f"a {type(value).__name__} is no number")
    text = _plain(value)
    match = _NUMBER.fullmatch(text) if len(text) <= _MAX_DIGITS else None
    if match is None or (match["sign"] and match["sign2"]):
        raise _Refused("it is not exactly one number")
    digits = match["digits"].replace(",", "")
    negative = match["sign"] in ("-", "−") or bool(match["sign2"])
    number: float | int = float(digits) if "." in digits else int(digits)
    return -number if negative else number


def _integer(spec: FieldSpec, value: Any, notes: list[str]) -> int:
    number = _number(spec, value, notes)
    if isinstance(number, float) and not number.is_integer():
        raise _Refused("it is not a whole number")
    return int(number)


def _boolean(spec: FieldSpec, value: Any, notes: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    word = _plain(value).casefold() if isinstance(value, str) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _Refused("it is neither yes nor no")


def _date(spec: FieldSpec, value: Any, notes: list[str]) -> str:
    if not isinstance(value, str):
        raise _Refused(f"a {type(value).__name__} is no date")
    text = _TIME.sub("", _plain(value)).strip()
    for pattern, order in (
        (_YEAR_FIRST, _numbers(0, 1, 2)),
        (_COMPACT, _numbers(0, 1, 2)),
        (_YEAR_LAST, _day_and_month),
        (_DAY_NAME, _named(2, 1, 0)),
        (_NAME_DAY, _named(2, 0, 1)),
    ):
        match = pattern.fullmatch(text)
        if match:
            year, month, day = order(match.groups())
            try:
                return datetime.date(year, month, day).isoformat()
            except ValueError as error:
                raise _Refused(str(error)) from None
    raise _Refused("it is not a full date with a four-digit year")


def _numbers(y: int, m: int, d: int) -> Callable[[tuple[str, ...]], tuple[int, int, int]]:
    return lambda parts: (int(parts[y]), int(parts[m]), int(parts[d]))


def _named(y: int, m: int, d: int) -> Callable[[tuple[str, ...]], tuple[int, int, int]]:
    def order(parts: tuple[str, ...]) -> tuple[int, int, int]:
        word = parts[m].lower()
        months = [i for i, name in enumerate(_MONTHS, 1) if name.startswith(word)]
        if word == "sept":
            months = [9]
        if len(months) != 1:
            raise _Refused(f"{parts[m]!r} is no month")
        return int(parts[y]), months[0], int(parts[d])

    return order


def _day_and_month(parts: tuple[str, ...]) -> tuple[int, int, int]:
    first, second, year = (int(p) for p in parts)
    if first <= 12 and second <= 12 and first != second:
        raise _Refused("day and month cannot be told apart")
    return (year, first, second) if second > 12 else (year, second, first)


def _array(spec: FieldSpec, value: Any, notes: list[str]) -> list[Any]:
    if isinstance(value, Mapping):
        raise _Refused("an object is no list")
    elements = list(value) if isinstance(value, (list, tuple)) else [value]
    if spec.items is None:
        return elements
    return [_nested(spec.items, element, notes) for element in elements]


def _object(spec: FieldSpec, value: Any, notes: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _Refused(f"a {type(value).__name__} is no object")
    if not spec.properties:
        return dict(value)
    extra = [str(key) for key in value if key not in {p.name for p in spec.properties}]
    if extra:
        notes.append(f"not asked for and left out: {', '.join(extra)}")
    return {p.name: _nested(p, value.get(p.name), notes) for p in spec.properties}


def _nested(spec: FieldSpec, value: Any, notes: list[str]) -> Any:
    found, notice = check_value(spec, value)
    if notice:
        notes.append(notice.text)
    return found


def _check_limits(spec: FieldSpec, value: Any) -> None:
    if spec.enum and _from_enum(spec, value) not in spec.enum:
        raise _Refused(f"it is none of {', '.join(map(str, spec.enum))}")
    # JSON Schema: a pattern may match anywhere in the string, and limits strings only.
    if spec.pattern and isinstance(value, str) and not re.search(spec.pattern, value):
        raise _Refused(f"it does not match {spec.pattern}")


def _from_enum(spec: FieldSpec, value: Any) -> Any:
    """The allowed value that equals `value` but for case and width, else `value` itself."""
    if value in spec.enum or not isinstance(value, str):
        return value
    same = [
        allowed
        for allowed in spec.enum
        if isinstance(allowed, str) and _plain(allowed).casefold() == _plain(value).casefold()
    ]
    return same[0] if len(same) == 1 else value


_READERS: Mapping[str, Callable[[FieldSpec, Any, list[str]], Any]] = {
    "string": _string,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "date": _date,
    "array": _array,
    "object": _object,
}
