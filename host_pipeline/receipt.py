"""Company, address and total of a receipt: blocks and rows that carry no label of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from host_pipeline.field_names import ADDRESS, AMOUNT, LEGAL_ENDINGS, NOT_ADDRESS
from host_pipeline.found import Found
from host_pipeline.grid import extent
from host_pipeline.result import Line

Rows = Sequence[Sequence[Line]]

_HEAD_ROWS = 14  # a receipt's issuer stands at its top
_REGISTRATION = re.compile(
    r"[(（]?\s*(?:CO\.?\s*(?:NO|REG)[^)]*|[A-Z]{0,3}\s?\d{5,}\s*-?\s*[A-Z]?)\s*[)）].*$"
)

_DOCUMENT = re.compile(r"(?<=\S)\s+(?:TAX\s+)?(?:INVOICE|RECEIPT|BILL)$", re.IGNORECASE)
_ADDRESSEE = re.compile(
    r"\b(?:ATTN|ATTENTION|BILL(?:ED)?\s*TO|SHIP\s*TO|CUSTOMER|SOLD\s*TO)\b", re.IGNORECASE
)

# The printed total that the customer pays, from the surest name to the least.
_TOTALS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), weight)
    for pattern, weight in (
        (r"TOTAL\s*(?:AFTER\s*)?(?:ROUNDED|ROUNDING|RND)|ROUNDED\s*TOTAL|ROUNDED\s*AMOUNT", 10.0),
        (r"价税合计|实付|应付|实收", 9.5),
        (r"GRAND\s*TOTAL|总计|总额", 9.0),
        (r"NETT?\s*TOTAL|TOTAL\s*PAYABLE|(?:AMOUNT|TOTAL|BALANCE)\s*(?:DUE|PAYABLE)", 8.6),
        (r"NETT?\s*(?:AMT|AMOUNT)|RECHNUNGSBETRAG|GESAMTBETRAG|ZU\s*ZAHLEN", 8.5),
        (r"TOTAL\s*(?:SALES?|AMOUNT|AMT)?\s*\(?\s*(?:INCL|INC)", 8.0),
        (r"\bTOTAL\b|合计|SUMME|GESAMT", 8.0),
        (r"TOTAL\s*(?:AMOUNT|AMT|SALES?|BILL)", 7.5),
    )
)
_NO_TOTAL = re.compile(
    r"SUB\s*-?\s*TOTAL|TOTAL\s*(?:QTY|QUANTITY|ITEMS?|TAX|GST|SST|DISC|SAVING|POINT|PCS|PAX|EXCL|"
    r"\(?\s*EXCL|EXC\b|CARD|NO)|(?:EXCL\w*|BEFORE|WITHOUT)\s*(?:GST|TAX)|TAX\s*TOTAL|小计|税额",
    re.IGNORECASE,
)
_ROUNDING = re.compile(r"ROUND|抹零|舍入", re.IGNORECASE)
_CASH = re.compile(r"\bCASH\b(?!IER)|\bTENDER|\bPAID\b|现金", re.IGNORECASE)
_CHANGE = re.compile(r"\bCHANGE\b|找零", re.IGNORECASE)


def plain_amount(text: str) -> str:
    """ "1 ,234. 50" -> "1234.50"; "34,73" (a decimal comma) -> "34.73"."""
    digits = re.sub(r"\s", "", text).replace("，", ",").replace("−", "-")
    if re.search(r",\d{2}$", digits) and "." not in digits[-4:]:
        digits = digits.replace(".", "")
        return digits[:-3].replace(",", "") + "." + digits[-2:]
    return digits.replace(",", "")


def find_company(rows: Rows) -> Found | None:
    """The issuer's name: the first line of the head with a legal form, else the first line of
    letters in capitals, else the first line of letters."""
    head = [line for row in rows[:_HEAD_ROWS] for line in row if _letters(line.text) >= 3]
    for index, line in enumerate(head):
        match = LEGAL_ENDINGS.search(line.text)
        if match is None or _ADDRESSEE.search(line.text):
            continue
        parts = [line]
        if index and _goes_on(head[index - 1], line, alone=match.start() <= 1):
            parts.insert(0, head[index - 1])
        text = " ".join(_company_text(p.text) for p in parts)
        return Found(text, tuple(parts), 0.9)
    plain = [line for line in head if not _is_other(_DOCUMENT.sub("", line.text))]
    capitals = [line for line in plain if line.text.upper() == line.text]
    for line in (capitals or plain)[:1]:
        return Found(_company_text(_DOCUMENT.sub("", line.text)), (line,), 0.5)
    return None


def find_address(rows: Rows) -> Found | None:
    """The block of lines from the first that looks like an address to the next label."""
    lines = [line for row in rows for line in row]
    head = lines[: max(12, len(lines) // 2)]
    start = next(
        (
            i
            for i, line in enumerate(head)
            if ADDRESS.search(line.text)
            and not NOT_ADDRESS.search(line.text)
            and not LEGAL_ENDINGS.search(line.text)
        ),
        None,
    )
    if start is None:
        return None
    block = [head[start]]
    for line in head[start + 1 : start + 7]:
        _, y0, _, y1 = extent(line)
        above = extent(block[-1])
        if NOT_ADDRESS.search(line.text) or y0 - above[3] > 1.0 * (y1 - y0):
            break
        block.append(line)
    return Found(" ".join(line.text for line in block), tuple(block), 0.7)


def find_total(rows: Rows) -> Found | None:
    """The amount to pay: the best named row, an agreement with cash minus change counting most."""
    paid = _paid(rows)
    best: tuple[float, str, Line] | None = None
    rounded = False
    for r, row in enumerate(rows):
        text = " ".join(line.text for line in row)
        rounded = rounded or bool(_ROUNDING.search(text))
        weight = next((w for pattern, w in _TOTALS if pattern.search(text)), None)
        if weight is None or _NO_TOTAL.search(text):
            continue
        found = _amount_of(rows, r)
        if found is None:
            continue
        value, line = found
        score = weight + (1.5 if rounded else 0.0)
        if paid is not None and abs(float(value) - paid) < 0.005:
            score += 3.0
        if best is None or score >= best[0]:
            best = (score, value, line)
    if best is not None:
        return Found(best[1], (best[2],), min(0.95, best[0] / 12))
    amounts = [
        (float(plain_amount(a)), line)
        for row in rows
        if not _CASH.search(" ".join(line.text for line in row))
        for line in row
        for a in AMOUNT.findall(line.text)
    ]
    if not amounts:
        return None
    value_, line = max(amounts, key=lambda a: a[0])
    return Found(f"{value_:.2f}", (line,), 0.3)


def _amount_of(rows: Rows, r: int) -> tuple[str, Line] | None:
    """The last amount of row `r`, or of the next row when that holds amounts alone."""
    for line in reversed(rows[r]):
        amounts = AMOUNT.findall(line.text)
        if amounts:
            return plain_amount(amounts[-1]), line
    for row in rows[r + 1 : r + 2]:
        bare = [line for line in row if AMOUNT.search(line.text) and _letters(line.text) <= 3]
        if len(bare) == len(row) == 1:
            return plain_amount(AMOUNT.findall(bare[0].text)[-1]), bare[0]
    return None


def _paid(rows: Rows) -> float | None:
    """Cash minus change, where both are printed."""
    seen: dict[str, float] = {}
    for r, row in enumerate(rows):
        text = " ".join(line.text for line in row)
        for name, pattern in (("cash", _CASH), ("change", _CHANGE)):
            if name not in seen and pattern.search(text):
                found = _amount_of(rows, r)
                if found is not None:
                    seen[name] = float(found[0])
    if len(seen) < 2 or seen["cash"] - seen["change"] <= 0:
        return None
    return seen["cash"] - seen["change"]


def _company_text(text: str) -> str:
    """The name without its registration number and without an address after its legal form."""
    text = _REGISTRATION.sub("", text)
    match = LEGAL_ENDINGS.search(text)
    if match is not None and text[match.end() :].lstrip()[:1] in tuple("-–,|·•"):
        text = text[: match.end()]
    return text.strip(" ,.-")


def _goes_on(above: Line, line: Line, alone: bool) -> bool:
    """Is `line` the second line of a name? Surely so when it is the legal form `alone`; else when
    both are set alike, close together, in capitals without digits."""
    if alone:
        return True
    _, top, _, bottom = extent(above)
    _, y0, _, y1 = extent(line)
    alike = abs((bottom - top) - (y1 - y0)) < 0.3 * (y1 - y0) and y0 - bottom < 0.4 * (y1 - y0)
    words = above.text.split()
    return (
        alike
        and above.text.upper() == above.text
        and not re.search(r"\d", above.text)
        and 1 <= len(words) <= 3
        and _letters(above.text) >= 5
        and not _is_other(above.text)
    )


def _is_other(text: str) -> bool:
    return bool(NOT_ADDRESS.search(text) or re.match(r"^\W*\d", text)) or text.endswith(":")


def _letters(text: str) -> int:
    return sum(c.isalpha() for c in text)
