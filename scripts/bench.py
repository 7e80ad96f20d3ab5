"""Benchmarks by name: `python scripts/bench.py read`. Each prints ratios against a named baseline
measured in the same run; absolute times are of this machine, this day and its load.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))


def main(argv: list[str]) -> int:
    """Run the benchmark named first; the rest are its own arguments."""
    names = sorted(p.stem[len("bench_") :] for p in Path(__file__).parent.glob("bench_*.py"))
    if not argv or argv[0] not in names:
        print(f"usage: bench.py {{{','.join(names)}}} [options]", file=sys.stderr)
        return 2
    module = importlib.import_module(f"scripts.bench_{argv[0]}")
    return int(module.main(argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
