"""An ONNX model as the compiler sees it: the graph in memory, the large weights on disk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

INLINE_BYTES = 1024  # smaller initialisers stay in the graph: shapes, scales, constants
_ACL = {1: 0, 10: 1, 3: 2, 6: 3, 2: 4, 5: 6, 4: 7, 12: 8, 7: 9, 13: 10, 11: 11, 9: 12, 16: 27}
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def acl_dtype(onnx_type: int) -> int:
    """aclDataType of an ONNX element type. Raises KeyError on a type that ACL lacks."""
    return _ACL[onnx_type]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an initialiser's bytes are: inline in the proto, or in a file."""

    proto: onnx.TensorProto
    folder: Path

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.proto.dims)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(self.proto.data_type))

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def external(self) -> bool:
        return self.proto.data_location == onnx.TensorProto.EXTERNAL

    def flat(self) -> np.ndarray[Any, Any]:
        """All elements, mapped when they are in a file."""
        if not self.external:
            return numpy_helper.to_array(self.proto).reshape(-1)
        info = external_data_helper.ExternalDataInfo(self.proto)
        path = self.folder / info.location
        return (
            np.memmap(path, self.dtype, "r", info.offset or 0, (self.count,))
            if self.count
            else (np.zeros(0, self.dtype))
        )


def load(path: Path) -> onnx.ModelProto:
    """The graph; external tensors up to INLINE_BYTES are read in, larger ones stay references."""
    model = onnx.load(str(path), load_external_data=False)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            size = (
                math.prod(tensor.dims)
                * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
            )
            if size <= INLINE_BYTES:
                external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
                tensor.data_location = onnx.TensorProto.DEFAULT
                del tensor.external_data[:]
    return model


def inputs_of(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that are not initialisers."""
    initial = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initial]


def shape_of(value: onnx.ValueInfoProto) -> list[int | str] | None:
    """Dims: numbers, symbols, "" where nothing is known; None without a shape."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param or "")
        for dim in kind.shape.dim
    ]


def set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    """Replaces the dims; -1 becomes an unknown one."""
    dims = value.type.tensor_type.shape.dim
    del dims[:]
    for index, size in enumerate(shape):
        dim = dims.add()
        if size >= 0:
            dim.dim_value = size
        else:
            dim.dim_param = f"{value.name}_{index}"
