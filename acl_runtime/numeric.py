"""Are the numbers of an output still numbers?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acl_runtime.errors import NumericFault


def require_finite(values: NDArray[Any], name: str) -> None:
    """Raises NumericFault if a float array holds NaN or infinity."""
    if values.dtype.kind != "f":
        return
    # The sum carries NaN and infinity along in one cheap pass; a finite array may overflow it.
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(values.sum(dtype=np.float32))
    if math.isfinite(total):
        return
    bad = int(values.size - np.isfinite(values).sum())
    if bad:
        raise NumericFault(
            f"{name}: {bad} of {values.size} values are NaN or infinite; the answer cannot be"
            " trusted. Look for the layer with `hyocr audit`, or use a CPU engine"
        )
