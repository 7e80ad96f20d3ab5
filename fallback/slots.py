"""How many rows each sequence of a cache holds; what the caches of all CPU engines share."""

from __future__ import annotations

import numpy as np

from fallback.errors import GraphInputError


class Slots:
    """`slots` sequences of at most `capacity` rows; lengths (slots,) int32, rows in use of each."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.lengths = np.zeros(slots, np.int32)

    def truncate(self, slot: int, length: int) -> None:
        """Forgets the rows of `slot` from `length` on; raises GraphInputError if it has fewer."""
        if not 0 <= length <= self.lengths[slot]:
            raise GraphInputError(f"slot {slot} holds {self.lengths[slot]} rows, not {length}")
        self.lengths[slot] = length
