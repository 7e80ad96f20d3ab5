"""What a span costs: with nothing recorded, while recording, while tracing, shared by two pages.

The best of many short runs, because a loaded machine only ever adds; the ratio is against an empty
`with` block measured the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import timeit

from profiling.spans import recording, span, together, tracing

# What the issue allows, in microseconds.
LIMITS_US = {"off": 1.0, "on": 5.0}


def main(argv: list[str]) -> int:
    """Print a row for each case; 1 if one is over its limit."""
    parser = argparse.ArgumentParser(prog="bench.py spans", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=200, help="short runs, of which the best counts"
    )
    runs = parser.parse_args(argv).runs
    times = measure_spans(runs)
    print(f"{'case':<22}{'us':>8}{'ratio':>8}{'limit us':>10}")
    for case, us in times.items():
        limit = LIMITS_US.get(case)
        shown = "" if limit is None else f"{limit:.1f}"
        print(f"{case:<22}{us:>8.2f}{us / times['empty with']:>8.1f}{shown:>10}")
    return int(any(times[case] > limit for case, limit in LIMITS_US.items()))


def measure_spans(runs: int) -> dict[str, float]:
    """Microseconds by case."""
    nothing = contextlib.nullcontext()

    def empty() -> None:
        with nothing:
            pass

    def one() -> None:
        with span("vision"):
            pass

    def best(work: object, number: int = 1000) -> float:
        return min(timeit.repeat(work, number=number, repeat=runs)) / number * 1e6  # type: ignore[arg-type]

    times = {"empty with": best(empty), "off": best(one)}
    with recording() as record:
        times["on"] = best(one)
        with span("outer"):
            times["on, nested"] = best(one)
    with tracing(), recording() as other:
        times["traced"] = best(one)
    with together([record, other]):
        times["shared by two pages"] = best(one)
    return times
