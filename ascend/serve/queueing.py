"""The queue of a model: clients take turns, each one's own requests keep their order."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come first served among the requests of one client, in turn among clients, so that one
    who sends a thousand delays another by one request and not by a thousand."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def push(self, client: str, item: T, *, first: bool = False) -> None:
        """Queue `item`; `first`: before everything else, for one that has waited already."""
        line = self._lines.setdefault(client, deque())
        if first:
            line.appendleft(item)
            self._lines.move_to_end(client, last=False)
        else:
            line.append(item)

    def pop(self) -> T | None:
        """The next in turn, or None."""
        if not self._lines:
            return None
        client, line = next(iter(self._lines.items()))
        item = line.popleft()
        if line:
            self._lines.move_to_end(client)
        else:
            del self._lines[client]
        return item

    def remove(self, client: str, item: T) -> bool:
        """Take `item` out; whether it was there."""
        line = self._lines.get(client)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[client]
        return True
