"""What a report gives reason to change: each finding with its evidence and what to do.

The thresholds are ours: below them the remedy is not worth the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change. share: of the time that it is about, 0..1; evidence: figures and names
    from the report."""

    code: str
    share: float
    text: str
    evidence: tuple[str, ...]
    remedy: str


def find(report: Report) -> list[Finding]:
    """Every finding of a report, the costliest first."""
    device = report["device"]
    found = [*_pages(report)]
    if device["busy_us"]:
        found += [*_ai_cpu(report), *_device(report), *_launches(report), *_copies(report)]
    return sorted(found, key=lambda finding: -finding.share)


def _ai_cpu(report: Report) -> Iterator[Finding]:
    ops, device = report["ai_cpu_ops"], report["device"]
    if not ops:
        return
    share = device["ai_cpu_us"] / device["busy_us"]
    yield Finding(
        "ai_cpu", share,
        f"the AI CPU takes {share:.0%} of the operator time",
        tuple(_op_line(op) for op in ops[:5]),
        "take the operator out of the graph or say it in others: `hyocr lint` names such operators"
        " before compiling; TopK and ArgMax belong on the host, indices in int32",
    )  # fmt: skip


def _device(report: Report) -> Iterator[Finding]:
    device = report["device"]
    use = device["matrix_use"]
    if use is not None and use < 0.3 and device["cube_us"] > 0.3 * device["busy_us"]:
        products = [op for op in report["top_ops"] if "MatMul" in op["type"]]
        yield Finding(
            "small_matrix_use", device["cube_us"] / device["busy_us"] * (1 - use),
            f"products keep the matrix unit busy {use:.0%} of their time",
            tuple(_op_line(op) for op in products[:3]),
            "few rows cannot fill it: verify drafts or decode several pages at once (a gear with"
            " more sequences); pad odd head sizes to 16; see `hyocr plan` for the bound",
        )  # fmt: skip
    if device["memory_bound_share"] > 0.5:
        bound = [op for op in report["top_ops"] if op["memory_bound_share"] > 0.5]
        yield Finding(
            "memory_bound", device["memory_bound_share"],
            f"{device['memory_bound_share']:.0%} of the operator time waits for memory",
            tuple(_op_line(op) for op in bound[:3]),
            "move less: int8 weights, a shorter cache gear, several sequences for one read of the"
            " weights; attention in smaller query blocks keeps its scores on the chip",
        )  # fmt: skip
    if device["fp32_share"] > 0.15:
        yield Finding(
            "fp32_islands", device["fp32_share"],
            f"{device['fp32_share']:.0%} of the operator time has fp32 inputs",
            (f"type conversions take {device['conversion_share']:.1%}",),
            "keep fp32 to norms, softmax and rotary products: look at the nodes kept by the export"
            " (`hyocr inspect`), and audit the others with fewer of them",
        )  # fmt: skip
    if device["conversion_share"] > 0.05:
        yield Finding(
            "conversions", device["conversion_share"],
            f"Cast and TransData take {device['conversion_share']:.0%} of the operator time",
            tuple(_op_line(o) for o in report["by_type"] if o["type"] in ("Cast", "TransData")),
            "let inputs come in the graph's own type and format; a TransData on the cache means"
            " that its layout is not the one the product wants",
        )  # fmt: skip


def _launches(report: Report) -> Iterator[Finding]:
    device = report["device"]
    gaps = device["gaps_us"] / device["window_us"]
    mean = device["busy_us"] / max(device["rows"], 1)
    if gaps > 0.15:
        yield Finding(
            "launch_bound", gaps,
            f"{gaps:.0%} of the device's time lies between kernels",
            (f"{device['rows']} kernels of {mean:.1f} us on average",),
            "fewer, larger kernels: fused norms and attention where the chip has them, several"
            " tokens a step (drafts), or more sequences",
        )  # fmt: skip
    waiting = device["waiting_us"] / device["window_us"]
    if waiting > 0.3:
        yield Finding(
            "host_bound", waiting,
            f"the device waits for the host {waiting:.0%} of the time",
            (f"busy {device['busy_us'] / 1e3:.1f} ms of {device['window_us'] / 1e3:.1f} ms",),
            "read pages ahead of the device (a batch, or more slots), sample faster, and look at"
            " the host's stages in this report",
        )  # fmt: skip


def _copies(report: Report) -> Iterator[Finding]:
    apis = [a for a in report["apis"] if a["level"] == "acl" and "Memcpy" in a["name"]]
    acl_us = sum(a["total_us"] for a in report["apis"] if a["level"] == "acl")
    copies = sum(a["total_us"] for a in apis)
    if acl_us and copies / acl_us > 0.25:
        yield Finding(
            "copies", copies / acl_us,
            f"copies take {copies / acl_us:.0%} of the time in ACL calls",
            tuple(f"{a['name']}: {a['count']} calls, {a['total_us'] / 1e3:.2f} ms" for a in apis),
            "keep tensors on the device between graphs, bind new cache rows in place, take one"
            " upload for small inputs, use pinned memory",
        )  # fmt: skip


def _pages(report: Report) -> Iterator[Finding]:
    stages = report["stages"]
    if stages is None:
        return
    used = sum(p["used"] for p in stages["patches"])
    ran = sum(p["gear"] for p in stages["patches"])
    if ran and 1 - used / ran > 0.25:
        yield Finding(
            "padding", 1 - used / ran,
            f"{1 - used / ran:.0%} of the patches that the vision graph ran were padding",
            tuple(f"{p['used']} patches in a gear of {p['gear']}" for p in stages["patches"][:3]),
            "compile gears for these pages: `hyocr plan MODEL --soc NAME --pages SIZES.csv`",
        )  # fmt: skip
    if stages["explained"] < 0.9:
        yield Finding(
            "unexplained", 1 - stages["explained"],
            f"{1 - stages['explained']:.0%} of the page time is in no stage",
            (f"{stages['whole_ms']:.1f} ms in all",),
            "pages that wait for a slot, or work outside of any stage: open the trace",
        )  # fmt: skip


def _op_line(op: Mapping[str, Any]) -> str:
    shapes = f" [{op['shapes']}]" if op["shapes"] else ""
    return f"{op['name']} ({op['type']}){shapes}: {op['count']} x {op['mean_us']:.1f} us"


def codes(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The codes of a report's findings."""
    return [finding["code"] for finding in findings]
