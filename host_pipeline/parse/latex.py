"""LaTeX of an answer: delimiters off, brackets balanced, nothing re-written.

The mends are those of the vendor's clean-up that lose nothing (`normalize_doc_parse_markdown`,
HunyuanOCR 1.5): unbalanced `\\left`/`\\right`, a leading `&`, surplus closing braces. Those that
fit its benchmark alone (splitting rows into formulas, dropping equation numbers) are left out.
"""

from __future__ import annotations

import re

from host_pipeline.parse.answer import Answer
from host_pipeline.result import Line, Notice

_FENCE = re.compile(r"\A\s*```(?:latex|tex|math)?[ \t]*\n(.*?)(?:\n[ \t]*```\s*)?\Z", re.DOTALL)
_DISPLAY = re.compile(r"\$\$(.*?)(?:\$\$|\Z)|\\\[(.*?)(?:\\\]|\Z)", re.DOTALL)
_INLINE = re.compile(r"\A\s*(?:\$([^$]*)\$|\\\((.*?)\\\))\s*\Z", re.DOTALL)
_TOKEN = re.compile(
    r"\\(?:begin|end)\s*\{([^{}]*)\}|\\(?:left|right)(?![A-Za-z])|\\.|[{}]", re.DOTALL
)


def parse_latex(raw: str) -> Answer:
    """The formulas of `raw`, one line each (kind "formula"), without delimiters in `text` and
    between `$$` in `markdown`. Text around displayed formulas is kept in place."""
    fence = _FENCE.match(raw)
    body = (fence[1] if fence else raw).strip()
    inline = _INLINE.match(body)
    if inline is not None:
        body = (inline[1] or inline[2] or "").strip()
    lines: list[Line] = []
    repairs: set[str] = set()
    for text, is_formula in _parts(body):
        formula, mended = balance(text) if is_formula else (text, [])
        repairs.update(mended)
        lines.append(Line(formula, kind="formula" if is_formula else "text"))
    notices = [Notice("latex_repaired", f"mended: {', '.join(sorted(repairs))}")] if repairs else []
    return Answer(
        lines=tuple(lines),
        text="\n".join(line.text for line in lines),
        markdown="\n\n".join(
            f"$$\n{line.text}\n$$" if line.kind == "formula" else line.text for line in lines
        ),
        warnings=tuple(notices),
    )


def _parts(body: str) -> list[tuple[str, bool]]:
    """The displayed formulas of `body` and the text between them; all one formula if there is
    no delimiter."""
    found = list(_DISPLAY.finditer(body))
    if not found:
        return [(body, True)] if body else []
    parts, position = [], 0
    for match in found:
        parts.append((body[position : match.start()].strip(), False))
        parts.append(((match[1] or match[2] or "").strip(), True))
        position = match.end()
    parts.append((body[position:].strip(), False))
    return [part for part in parts if part[0]]


def balance(formula: str) -> tuple[str, list[str]]:
    """`formula` with its braces, environments and \\left/\\right closed, and what was mended.

    Missing ends are added where the formula was cut (at its end, innermost first); a surplus
    closing brace at the very end goes, one inside stays and is only reported."""
    repairs: list[str] = []
    if formula.lstrip().startswith("&"):
        formula = formula.lstrip()[1:].lstrip()
        repairs.append("a leading alignment mark")
    open_: list[str] = []
    surplus: list[int] = []
    missing_left = 0
    for token in _TOKEN.finditer(formula):
        kind, name = token[0], token[1]
        if kind == "{" or kind.startswith("\\left"):
            open_.append("}" if kind == "{" else r"\right.")
        elif name is not None and kind.startswith("\\begin"):
            open_.append(f"\\end{{{name}}}")
        elif kind == "}" or kind.startswith("\\right") or name is not None:
            closer = "}" if kind == "}" else r"\right." if name is None else f"\\end{{{name}}}"
            if closer in open_:
                _close(open_, closer, repairs)
            elif kind == "}":
                surplus.append(token.start())
            elif name is None:
                missing_left += 1
            else:
                repairs.append("an \\end without its \\begin (kept)")
    formula = _without_surplus(formula, surplus, repairs)
    if open_:
        formula = formula.rstrip()
        # A backslash at the cut would make "\\}" of the brace that is to close.
        backslashes = len(formula) - len(formula.rstrip("\\"))
        formula += " " * (backslashes % 2) + "".join(reversed(open_))
        repairs.append("missing ends")
    if missing_left:
        formula = r"\left." * missing_left + " " + formula
        repairs.append(r"missing \left")
    return formula, repairs


def _close(open_: list[str], closer: str, repairs: list[str]) -> None:
    """Take the innermost `closer` off the stack; what is open inside it was never closed."""
    at = len(open_) - 1 - open_[::-1].index(closer)
    if at != len(open_) - 1:
        repairs.append("crossing brackets (kept)")
    del open_[at:]


def _without_surplus(formula: str, surplus: list[int], repairs: list[str]) -> str:
    """`formula` without those of its `surplus` braces (their places) that end it."""
    while surplus and surplus[-1] == len(formula.rstrip()) - 1:
        formula = formula[: surplus.pop()]
        repairs.append("a surplus closing brace")
    if surplus:
        repairs.append("a surplus closing brace (kept)")
    return formula
