"""A plan as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Row = Sequence[str]


def plan_text(plan: Mapping[str, Any]) -> str:
    """The lines of a plan (see `ascend.planning.plan`), readable at 100 columns."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Mapping[str, Any]) -> Iterator[str]:
    chip = plan["chip"]
    yield f"{plan['model']} on {chip['name']}: a forecast, not a measurement"
    yield (
        f"  {chip['fp16_peak'] / 1e12:.1f} TFLOP/s fp16, {_span(chip['bandwidth'], 1e-9)} GB/s,"
        f" {_gib(chip['memory_bytes'])} for models; counted by {plan['counted_by']}"
    )
    for figure, certainty in chip["certainty"].items():
        if certainty != "documented":
            yield f"  {figure} is {certainty}: {chip['sources'][figure]}"
    yield ""
    yield from _gears(plan)
    if "page" in plan:
        yield from _page(plan)
    yield from _memory(plan)
    yield from _batches(plan)
    if "found" in plan:
        yield from _found(plan["found"])
    if "alternatives" in plan:
        yield from _alternatives(plan)
    yield from _table([["assumption", "value"], *map(list, plan["assumptions"].items())])


def _gears(plan: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Row] = [["graph", "gear", "ms", "bound by", "share", "GFLOP", "MB moved", "kernels"]]
    for entry in plan["gears"]:
        moved = entry["weight_bytes"] + entry["must_move_bytes"]
        rows.append(
            [
                entry["graph"], ",".join(map(str, entry["gear"])), _span(entry["ms"]),
                entry["dominant"], f"{entry['share']:.0%}", f"{entry['flops'] / 1e9:.1f}",
                f"{moved / 1e6:.0f}+{entry['between_bytes'] / 1e6:.0f}", str(entry["kernels"]),
            ]
        )  # fmt: skip
    yield from _table(rows)
    yield "  MB moved: weights, cache and inputs + intermediates, if all of those go through memory"
    yield ""


def _page(plan: Mapping[str, Any]) -> Iterator[str]:
    page, pages = plan["page"], plan["pages"]
    yield (
        f"Mean of {pages['pages']} page(s): {page['patches']:.0f} patches,"
        f" {page['prompt']:.0f} prompt tokens, {page['tokens']} answer tokens;"
        f" padding {page['waste']:.0%}, {page['cut']:.0%} of the pages are shrunk or tiled"
    )
    rows: list[Row] = [["part", "ms"]]
    for part in ("host", "vision", "prefill", "token"):
        name = "one token" if part == "token" else part
        rows.append([name, _span(page[part])])
    rows.append(["page", _span(page["page"])])
    yield from _table(rows)


def _memory(plan: Mapping[str, Any]) -> Iterator[str]:
    memory = plan["memory"]
    yield f"Memory at {memory['slots']} sequence(s) of {memory['capacity']} cache rows:"
    rows: list[Row] = [["part", "MB"]]
    rows += [[part, f"{size / 1e6:.1f}"] for part, size in memory["parts"].items()]
    rows.append(["device in all", f"{memory['total'] / 1e6:.0f} to {memory['worst'] / 1e6:.0f}"])
    rows.append(["pinned host", f"{memory['pinned'] / 1e6:.1f}"])
    rows.append(["embedding table (mapped file, host)", f"{memory['host_table'] / 1e6:.0f}"])
    yield from _table(rows)
    fits = "fits" if memory["fits"] else "DOES NOT FIT"
    yield (
        f"  {fits} in {_gib(plan['chip']['memory_bytes'])}; largest canvas"
        f" {memory['largest_canvas']} patches; largest batch {memory['largest_batch']} sequences"
    )
    yield ""


def _batches(plan: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Row] = [["sequences", "gear", "ms a step", "tokens/s in all", "memory MB", "fits"]]
    for entry in plan["batches"]:
        if entry["gear"] is None:
            rows.append([str(entry["batch"]), "none compiled", "", "", "", ""])
            continue
        rows.append(
            [
                str(entry["batch"]), ",".join(map(str, entry["gear"])), _span(entry["step"]),
                _span(entry["tokens_per_s"]), f"{entry['memory'] / 1e6:.0f}",
                "yes" if entry["fits"] else "no",
            ]
        )  # fmt: skip
    yield from _table(rows)


def _found(found: Mapping[str, Any]) -> Iterator[str]:
    yield "Gears found for these pages (give them to hyocr compile --gears):"
    yield "  vision: " + " ".join(map(str, found["vision"]))
    yield "  llm (B,Q,S,R): " + " ".join(",".join(map(str, gear)) for gear in found["llm"])
    rows: list[Row] = [["vision gears", "ms a page (middle)", "padding", "list"]]
    for entry in found["curve"]:
        rows.append(
            [
                str(len(entry["gears"])), f"{entry['cost']:.1f}", f"{entry['waste']:.0%}",
                " ".join(map(str, entry["gears"])),
            ]
        )  # fmt: skip
    yield from _table(rows)
    page, own = found["page"], found["page_before"]
    yield (
        f"  a page takes {_span(page['page'])} ms with these, {_span(own['page'])} ms with the"
        f" gears above; padding {page['waste']:.0%} instead of {own['waste']:.0%}"
    )
    yield ""


def _alternatives(plan: Mapping[str, Any]) -> Iterator[str]:
    where = plan["compared_at"]
    yield f"Alternatives, at {where['cache']} cache rows and {where['patches']} patches:"
    rows: list[Row] = [["what", "how", "ms a token", "ms a chunk", "ms vision", "MB more", ""]]
    for entry in plan["alternatives"]:
        mark = "* " if entry["chosen"] else "  "
        times = [_span(entry[k]) if entry[k] else "" for k in ("token", "prefill", "vision")]
        more = f"{entry['memory'] / 1e6:+.0f}" if entry["memory"] else ""
        rows.append([entry["topic"], mark + entry["name"], *times, more, entry["note"]])
    yield from _table(rows)
    yield "  * as it is built; a chunk: 512 prompt rows behind 512"
    yield ""


def _table(rows: Iterable[Row]) -> Iterator[str]:
    """Aligned columns, a blank line behind."""
    rows = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield ("  " + "  ".join(cells)).rstrip()
    yield ""


def _span(ends: Sequence[float], factor: float = 1.0) -> str:
    low, high = (end * factor for end in ends)
    digits = 0 if high >= 100 else 1 if high >= 10 else 2
    return f"{low:.{digits}f} to {high:.{digits}f}"


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
