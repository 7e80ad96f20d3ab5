"""Work on several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(i)` gives on `count` threads that start together; exceptions are results."""
    results: list[Any] = [None] * count
    gate = threading.Barrier(count)

    def run(index: int) -> None:
        gate.wait(60)
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return results
