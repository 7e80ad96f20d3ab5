"""JSON as a language model writes it, decoded with the least repair that makes it readable.

Order: as it stands; without the fence around all of it; with raw newlines and bad escapes
mended; through the `json_repair` library. Every repair is a notice, and what a repair would lose
is handed back as `leftovers`. Nothing is ever asked of the model again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host_pipeline.result import Notice

_MAX_DEPTH = 100  # no answer form nests deeper than 4; both decoders recurse
_MAX_DIGITS = 300  # past that a float is infinite, and int() refuses at 4300

# A lone \f or \b before letters is never a form feed in OCR; these begin with \t, \n or \r.
_LATEX = re.compile(
    r"(?:times|theta|text[a-z]*|tilde|triangle|tfrac|tanh?|nabla|notin|neq|"
    r"rho|right[a-z]*|rangle|rfloor|rceil)(?![A-Za-z])"
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_BETWEEN = re.compile(r'(?<=\})\s*,?\s*(?=\{\s*"\w+"\s*:)')
# A string value up to the quote after which another key, or the object's end, follows.
_STRING_VALUE = re.compile(
    r'("[^"]{1,80}"\s*:\s*")(.*?)("(?=\s*(?:,\s*"[^"]{1,80}"\s*:|\}[\s\]}]*\Z)))', re.DOTALL
)
_MAX_QUOTED = 20_000  # characters; looking for lost quotes takes time by the square
_CLOSED = re.compile(r'["\]]\s*\}[\s\]]*\Z')  # ends like an item whose quotes only miscount
_FENCE = re.compile(r"\A```[A-Za-z]*[ \t]*\r?\n?")


@dataclass(frozen=True, slots=True)
class Decoded:
    """`value` is the JSON value (None and `found` False when there is none), `leftovers` the text
    that is not in it, `cut` True when the text ended before the value did."""

    value: Any = None
    found: bool = False
    notices: tuple[Notice, ...] = ()
    leftovers: tuple[str, ...] = ()
    cut: bool = False


def decode_json(raw: str) -> Decoded:
    """The one JSON value in `raw`."""
    body = _unfenced(raw)
    if not body:
        return Decoded()
    if _depth(body) > _MAX_DEPTH:
        text = f"JSON nested deeper than {_MAX_DEPTH} levels is not read"
        return Decoded(notices=(Notice("json_invalid", text),), leftovers=(body,))
    return _decode_plain(body, quotes=True) or _decode_repaired(body)


def decode_items(raw: str) -> tuple[list[dict[str, Any]], Decoded]:
    """The objects of a JSON array of flat objects, each decoded by itself when the whole is not
    valid, so that one bad item costs no other. An unfinished last item is in `leftovers`."""
    body = _unfenced(raw)
    plain = _decode_plain(body) if body and _depth(body) <= _MAX_DEPTH else None
    if plain is not None:
        values = plain.value if isinstance(plain.value, list) else [plain.value]
        odd = [json.dumps(v, ensure_ascii=False) for v in values if not isinstance(v, dict)]
        items = [v for v in values if isinstance(v, dict)]
        return items, Decoded(items, True, plain.notices, (*plain.leftovers, *odd))
    items, notices, leftovers = [], Counter[str](), list[str]()
    pieces = _BETWEEN.split(body)
    for piece in pieces:
        slice_ = piece.strip().strip(",").strip()
        found = _decode_item(slice_, last=piece is pieces[-1])
        items += found.value if found.found else []
        notices.update(n.text for n in found.notices)
        leftovers += found.leftovers
    texts = tuple(Notice("json_repaired", f"{n} x {t}" if n > 1 else t) for t, n in notices.items())
    return items, Decoded(items, bool(items), texts, tuple(leftovers), cut=bool(leftovers))


def _decode_item(text: str, *, last: bool) -> Decoded:
    start = text.find("{")
    if start < 0 or (last and _is_open(text[start:]) and not _CLOSED.search(text)):
        rest = text.strip("[] \n")
        return Decoded(leftovers=(rest,) if rest else ())
    body = text[start:].rstrip("] \r\n\t") if last else text[start:]
    if _depth(body) > _MAX_DEPTH:
        return Decoded(leftovers=(body,))
    found = _decode_plain(body, quotes=True) or _decode_repaired(body)
    before = text[:start].strip("[ \r\n\t,")
    leftovers = (before, *found.leftovers) if before else found.leftovers
    if not isinstance(found.value, dict):
        return Decoded(notices=found.notices, leftovers=leftovers or (body,))
    return Decoded([found.value], True, found.notices, leftovers)


def _unfenced(raw: str) -> str:
    """`raw` without a fence around all of it; a fence inside a value is left alone."""
    text = raw.strip()
    opening = _FENCE.match(text)
    if opening is None:
        return text
    inner = text[opening.end() :].rstrip()
    return inner[:-3].rstrip() if inner.endswith("```") else inner


def _decode_plain(body: str, *, quotes: bool = False) -> Decoded | None:
    """The value at the first bracket, valid as it stands or after mending escapes, newlines and
    (for one object, with `quotes`) quotes; None if it is not valid then either."""
    mended = _ESCAPE.sub(_mend_escape, body)
    attempts = [(mended, True, ""), (mended, False, "raw line breaks inside strings")]
    if quotes and len(mended) <= _MAX_QUOTED:
        requoted = _STRING_VALUE.sub(_mend_quotes, mended)
        attempts.append((requoted, False, "unescaped quotes inside strings"))
    for text, strict, repair in attempts:
        for start in _starts(text):
            duplicates: list[str] = []
            try:
                value, end = _decoder(strict, duplicates).raw_decode(text, start)
            except (ValueError, RecursionError):
                continue
            notices = []
            if mended != body:
                notices.append(Notice("json_repaired", "invalid escapes kept as backslashes"))
            if repair:
                notices.append(Notice("json_repaired", repair))
            if duplicates:
                notices.append(Notice("json_duplicate_key", "a key stands twice; the first counts"))
            outside = [t for t in (text[:start], text[end:]) if t.strip("` \r\n\t")]
            found = tuple(t.strip() for t in (*outside, *duplicates))
            return Decoded(value, True, tuple(notices), found)
    return None


def _starts(text: str) -> list[int]:
    """Where the value may begin: the first bracket, or the first brace after a "[word]"."""
    brace, bracket = text.find("{"), text.find("[")
    if bracket < 0 or 0 <= brace < bracket:
        return [brace] if brace >= 0 else []
    closing = text.find("]", bracket)
    return [bracket, brace] if 0 <= closing < brace else [bracket]


def _decode_repaired(body: str) -> Decoded:
    import json_repair

    start = min((i for i in (body.find("{"), body.find("[")) if i >= 0), default=-1)
    if start < 0:
        return Decoded(leftovers=(body,))
    text = _ESCAPE.sub(_mend_escape, body[start:])
    value: Any
    log: list[dict[str, str]]
    try:
        # With logging=True the library returns a pair, which its annotations do not say.
        value, log = json_repair.loads(text, skip_json_loads=True, logging=True)  # type: ignore
    except (ValueError, RecursionError):
        value, log = None, []
    if not isinstance(value, (dict, list)) or not value:
        notice = Notice("json_invalid", "the answer is no JSON, and could not be repaired")
        return Decoded(notices=(notice,), leftovers=(body,))
    what = "; ".join(dict.fromkeys(entry["text"] for entry in log)) or "brackets closed"
    before = body[:start].strip()
    lost = _letters(text) - _letters(json.dumps(value, ensure_ascii=False))
    leftovers = (body,) if lost else (before,) if before else ()
    return Decoded(
        value, True, (Notice("json_repaired", what[:300]),), leftovers, cut=_is_open(text)
    )


def _letters(text: str) -> Counter[str]:
    return Counter(c for c in text if c.isalnum())


def _is_open(text: str) -> bool:
    """True when `text` ends inside a string, or before its brackets are closed."""
    depth, inside = 0, False
    for token in re.finditer(r'\\.|["{}\[\]]', text, re.DOTALL):
        mark = token[0]
        if mark == '"':
            inside = not inside
        elif not inside and len(mark) == 1:
            depth += 1 if mark in "{[" else -1
    return inside or depth > 0


def _depth(text: str) -> int:
    """The deepest nesting of brackets, those inside strings counted too (a safe upper bound)."""
    depth = deepest = 0
    for mark in re.findall(r"[{}\[\]]", text):
        depth = depth + 1 if mark in "{[" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def _mend_escape(match: re.Match[str]) -> str:
    """The escape as it stands if JSON knows it, else with its backslash doubled."""
    code, rest = match[1], match.string[match.end() : match.end() + 16]
    if code in ("b", "f") and rest[:1].isalpha():
        return "\\\\" + code
    if code in ("t", "n", "r") and _LATEX.match(code + rest):
        return "\\\\" + code
    if code[:1] in ('"', "\\", "/", "b", "f", "n", "r", "t") or len(code) == 5:
        return match[0]
    return "\\\\" + code


def _mend_quotes(match: re.Match[str]) -> str:
    inner = re.sub(r'\\.|"', lambda m: '\\"' if m[0] == '"' else m[0], match[2], flags=re.DOTALL)
    return match[1] + inner + match[3]


def _decoder(strict: bool, duplicates: list[str]) -> json.JSONDecoder:
    def pairs(found: list[tuple[str, Any]]) -> Mapping[str, Any]:
        value: dict[str, Any] = {}
        for key, item in found:
            if key in value:
                duplicates.append(json.dumps({key: item}, ensure_ascii=False))
            else:
                value[key] = item
        return value

    return json.JSONDecoder(
        strict=strict,
        object_pairs_hook=pairs,
        parse_int=lambda digits: int(digits) if len(digits) <= _MAX_DIGITS else digits,
        parse_float=lambda digits: float(digits) if len(digits) <= _MAX_DIGITS else digits,
        parse_constant=str,  # NaN and Infinity are not JSON: kept as the words they are
    )
