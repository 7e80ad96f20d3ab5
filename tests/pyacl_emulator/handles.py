"""Opaque handles: typed, checked, and never used again after they die."""

from __future__ import annotations

from typing import Any, TypeVar

from .violation import EmulatorViolation

T = TypeVar("T")
_FIRST = 0x5600_0000_0000
_STEP = 0x40


class Handles:
    """All live handles of a process; an address is given once, so a stale one is recognised."""

    def __init__(self) -> None:
        self.live: dict[int, Any] = {}
        self._next = _FIRST

    def add(self, thing: Any) -> int:
        """Registers a thing and returns its handle."""
        handle = self._next
        self._next = handle + _STEP
        self.live[handle] = thing
        return handle

    def get(self, handle: int, kind: type[T]) -> T:
        """The thing behind a handle. Raises EmulatorViolation on a stale, foreign or wrong one."""
        thing = self.live.get(handle)
        if type(thing) is kind:
            return thing
        wanted = kind.__name__
        if thing is not None:
            raise EmulatorViolation(
                f"handle {handle:#x} is a {type(thing).__name__}, not a {wanted}",
                "acl api_ref: each create_* pairs with its own destroy_*",
            )
        if _FIRST <= handle < self._next:
            raise EmulatorViolation(
                f"{wanted} handle {handle:#x} is used after it was destroyed",
                "acl api_ref: a destroyed resource must not be used",
            )
        raise EmulatorViolation(
            f"{handle:#x} was never a {wanted} handle",
            "acl api_ref: handles come only from the create_* functions",
        )

    def pop(self, handle: int, kind: type[T]) -> T:
        """Removes and returns; the same checks as `get`."""
        thing = self.get(handle, kind)
        del self.live[handle]
        return thing

    def of(self, kind: type[T]) -> list[T]:
        """Every live thing of a kind."""
        return [thing for thing in list(self.live.values()) if type(thing) is kind]
