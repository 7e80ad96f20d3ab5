"""How long work says where it is: lines on a terminal's stderr, log entries elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence

from ascend.errors import UsageError

log = logging.getLogger(__name__)


def speaker() -> Callable[[str], None]:
    """A function that shows one line of progress; stdout stays for data."""
    if sys.stderr.isatty():
        return lambda text: print(text, file=sys.stderr, flush=True)
    return log.info


def parse_gears(options: Sequence[str] | None) -> dict[str, list[list[int]]]:
    """`GRAPH=1,2;3,4` (several times) -> graph -> gears. Raises UsageError showing the form."""
    gears: dict[str, list[list[int]]] = {}
    for option in options or ():
        graph, equals, rows = option.partition("=")
        try:
            gears[graph] = [[int(size) for size in row.split(",")] for row in rows.split(";")]
        except ValueError as error:
            raise UsageError(f"--gears {option!r}: write GRAPH=1,2;3,4, one row a gear") from error
        if not equals:
            raise UsageError(f"--gears {option!r}: write GRAPH=1,2;3,4, one row a gear")
    return gears
