"""Fields of a page from the geometry of its lines: no model, and nothing that is not on the page.

A value is looked for on its label's line, to the right, and below; receipts get rules of their
own (`receipt.py`). The names are those of `field_names.py`, or the asked name itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from host_pipeline import receipt
from host_pipeline.field_names import AMOUNT, CODE, CONCEPTS, DATE, Concept, Kind, fold
from host_pipeline.found import Found
from host_pipeline.grid import extent
from host_pipeline.parse.fields_schema import FieldSpec
from host_pipeline.parse.values import check_value
from host_pipeline.result import Field, Line, Notice

Rows = Sequence[Sequence[Line]]

# Sections of a Chinese invoice, whose labels inside are the same for both parties.
_SECTIONS = {"购": re.compile(r"^购$|购[买货]?方?"), "销": re.compile(r"^销$|销[售货]?方?")}
_SECTION_KEY = re.compile(r"^(购|销)[买售货]?方?(.+)$")
_SEPARATORS = " \t:：=#｜|-–—•*.,，、；;"


def extract_fields(
    rows: Rows, specs: Sequence[FieldSpec]
) -> tuple[tuple[Field, ...], list[Notice]]:
    """One Field for each spec, in order; value None (and no quad) for what is not on the page.
    `rows` are the page's lines with quads, in reading order. The notices say what was converted
    or refused by a field's type."""
    fields, notices = [], []
    others = [n for spec in specs for n in _names(spec)[1]]
    for spec in specs:
        found = _find(rows, spec, others)
        if found is None:
            fields.append(Field(spec.name))
            continue
        value, notice = check_value(spec, found.text)
        if notice is not None:
            notices.append(notice)
        raw = " ".join(line.text for line in found.lines)
        fields.append(Field(spec.name, value, raw, found.quad, found.score))
    return tuple(fields), notices


def _find(rows: Rows, spec: FieldSpec, others: Sequence[str]) -> Found | None:
    concept, labels = _names(spec)
    kind = concept.kind if concept is not None else _kind_of(spec)
    if kind == "total":
        own = _labelled(rows, [fold(spec.name)], "amount", others)
        return own if _is_chinese(spec.name) and own else receipt.find_total(rows) or own
    section = _SECTION_KEY.match(spec.name)
    if section is not None:
        inside = _in_section(rows, section.group(1), section.group(2), others)
        if inside is not None:
            return inside
    if kind == "pattern" and concept is not None and concept.pattern is not None:
        return _matching(rows, concept.pattern, concept.which) or _labelled(
            rows, labels, "text", others
        )
    crossing = _at_crossing(rows, spec.name) if kind in ("amount", "text") else None
    found = crossing or _labelled(rows, labels, kind, others)
    if found is not None:
        return _with_continuation(rows, found) if kind == "address" else found
    if kind == "company":
        return receipt.find_company(rows)
    if kind == "address":
        return receipt.find_address(rows)
    if kind == "date":
        return _matching(rows, DATE, 0)
    return None


def _names(spec: FieldSpec) -> tuple[Concept | None, list[str]]:
    """The concept that the field's name stands for, and the folded labels to look for."""
    asked = fold(spec.name)
    for concept in CONCEPTS:
        if asked in concept.asked:
            own = [] if concept.kind in ("company", "total") else [asked]
            return concept, [*own, *(name for name in concept.labels if name != asked)]
    described = [fold(spec.description)] if 0 < len(spec.description) <= 20 else []
    return None, [asked, *described]


def _kind_of(spec: FieldSpec) -> Kind:
    if spec.type == "date":
        return "date"
    name = spec.name.casefold()
    if "date" in name or any(w in spec.name for w in ("日期", "出生", "时间")):
        return "date"
    if spec.type in ("number", "integer") or any(
        w in spec.name for w in ("金额", "合计", "价", "税额")
    ):
        return "amount"
    if "住所" in spec.name or "地址" in spec.name:
        return "address"
    return "text"


# -- labels


def _labelled(rows: Rows, labels: Sequence[str], kind: Kind, others: Sequence[str]) -> Found | None:
    """The best value beside or under any of the labels; earlier labels are better names."""
    best: Found | None = None
    for rank, label in enumerate(labels):
        for r, row in enumerate(rows):
            for i, line in enumerate(row):
                rest = _after_label(line.text, label)
                if rest is None:
                    continue
                for found in _values(rows, r, i, rest, kind, others):
                    sure = found.sureness - 0.03 * min(rank, 10)
                    if best is None or sure > best.sureness + 1e-9:
                        best = Found(found.text, found.lines, sure)
    return best


def _after_label(text: str, label: str) -> str | None:
    """What follows `label` (folded) at the start of `text` or of a part of it; None without it.
    Spaces inside the printed label do not count; a Latin label must be whole words."""
    if not label:
        return None
    folded, origin = [], []
    for index, char in enumerate(unicodedata.normalize("NFC", text)):
        for c in fold(char):
            folded.append(c)
            origin.append(index)
    flat = "".join(folded)
    at = flat.find(label)
    while at >= 0:
        end = origin[at + len(label) - 1] + 1
        if _is_word(text, origin[at], end, label):
            return text[end:]
        at = flat.find(label, at + 1)
    return None


def _is_word(text: str, start: int, end: int, label: str) -> bool:
    before, after = text[:start], text[end:]
    if _is_chinese(label):
        # Inside a longer Chinese word it is another label: 合计 in 价税合计 is not meant.
        return not _is_chinese(before[-1:]) or len(label) >= 4
    return not (before[-1:].isalnum() or (after[:1].isalpha() and label[-1].isalpha()))


def _values(
    rows: Rows, r: int, i: int, rest: str, kind: Kind, others: Sequence[str]
) -> Iterator[Found]:
    """Candidates of one label: on its line, right of it, under it."""
    row, line = rows[r], rows[r][i]
    text = _value_text(rest, kind, others)
    strong = 0.95 if rest[:3].strip()[:1] in (":", "：") else 0.85
    if text is not None:
        yield Found(text, (line,), strong)
        return
    for neighbour in row[i + 1 : i + 3]:
        text = _value_text(neighbour.text, kind, others)
        if text is not None:
            yield Found(text, (neighbour,), 0.9)
            return
        if fold(neighbour.text):
            break
    x0, _, x1, y1 = extent(line)
    height = max(1.0, y1 - extent(line)[1])
    for below in rows[r + 1 : r + 3]:
        for candidate in below:
            a, top, b, _ = extent(candidate)
            if top - y1 > 2.0 * height or min(b, x1) - max(a, x0) <= 0:
                continue
            text = _value_text(candidate.text, kind, others)
            if text is not None:
                yield Found(text, (candidate,), 0.7)
                return


def _value_text(text: str, kind: Kind, others: Sequence[str]) -> str | None:
    """The value of `kind` in `text`, or None where there is none."""
    text = text.strip().lstrip(_SEPARATORS).strip()
    if kind == "date":
        match = DATE.search(text)
        return match.group().strip() if match else None
    if kind in ("amount", "total"):
        amounts = AMOUNT.findall(text)
        return receipt.plain_amount(amounts[-1]) if amounts else None
    if kind == "code":
        match = CODE.search(text)
        return match.group().strip(".-/") if match and match.start() <= 6 else None
    for other in others:  # "姓名 张三 性别 男": the next label ends the value
        at = _label_position(text, other)
        if at is not None and at > 0:
            text = text[:at].strip()
    text = text.strip(_SEPARATORS)
    return text or None


def _label_position(text: str, label: str) -> int | None:
    at = text.find(label)
    return at if len(label) >= 2 and at > 0 and _is_chinese(label) else None


def _with_continuation(rows: Rows, found: Found) -> Found:
    """An address goes on in the lines under its first one that start where it starts and have no
    label to their left."""
    lines = list(found.lines)
    for _ in range(2):
        x0, y0, _, y1 = extent(lines[-1])
        height = y1 - y0
        following = [
            line
            for row in rows
            for line in row
            if 0 < extent(line)[1] - y0 < 1.8 * height
            and abs(extent(line)[0] - x0) < height
            and ":" not in line.text
            and "：" not in line.text
            and not any(extent(other)[2] <= extent(line)[0] for other in row)
        ]
        if not following:
            break
        lines.append(following[0])
    text = found.text + "".join(line.text for line in lines[1:])
    return Found(text, tuple(lines), found.sureness)


# -- other places


def _matching(rows: Rows, pattern: re.Pattern[str], which: int) -> Found | None:
    matches = [
        Found(match.group().strip(), (line,), 0.8)
        for row in rows
        for line in row
        for match in pattern.finditer(line.text)
    ]
    return matches[which] if which < len(matches) else None


def _in_section(rows: Rows, section: str, label: str, others: Sequence[str]) -> Found | None:
    """The value of `label` inside the part of the page that its section's heading stands beside:
    of several equal labels, the one whose middle is nearest to the heading's."""
    headings = [
        (extent(line)[1] + extent(line)[3]) / 2
        for row in rows
        for line in row
        if _SECTIONS[section].search(fold(line.text)[:4])
    ]
    candidates: list[tuple[float, Found]] = []
    for r, row in enumerate(rows):
        for i, line in enumerate(row):
            rest = _after_label(line.text, fold(label))
            if rest is not None:
                middle = (extent(line)[1] + extent(line)[3]) / 2
                candidates.extend((middle, f) for f in _values(rows, r, i, rest, "text", others))
    if not candidates:
        return None
    if headings:
        return min(candidates, key=lambda c: min(abs(c[0] - h) for h in headings))[1]
    # Without a readable heading: the buyer stands above the seller on every official form.
    candidates.sort(key=lambda c: c[0])
    return candidates[0 if section == "购" else -1][1]


def _at_crossing(rows: Rows, name: str) -> Found | None:
    """ "合计税额" is the cell of row 合计 under the column 税额: any split of the name is tried."""
    for cut in range(2, len(name) - 1):
        row_label, column_label = fold(name[:cut]), fold(name[cut:])
        heads = [line for row in rows for line in row if fold(line.text) == column_label]
        for row in rows:
            if not any(fold(line.text) == row_label for line in row):
                continue
            for head in heads:
                x0, _, x1, _ = extent(head)
                for cell in row:
                    a, _, b, _ = extent(cell)
                    amounts = AMOUNT.findall(cell.text)
                    if amounts and min(b, x1 + (x1 - x0)) - max(a, x0 - (x1 - x0)) > 0:
                        return Found(receipt.plain_amount(amounts[-1]), (cell,), 0.85)
    return None


def _is_chinese(text: str) -> bool:
    return any("\u4e00" <= char <= "\u9fff" for char in text)
