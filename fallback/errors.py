"""Every error the CPU engines raise, so that a caller can tell a bad file from a bad call.

FallbackError
├── CheckpointError              the folder or a file in it cannot be used
│   ├── CheckpointNotFoundError  no folder, or a file that every checkpoint has is missing
│   ├── CheckpointFormatError    not safetensors at all, or cut short, or JSON that does not parse
│   ├── ArchitectureError        a readable checkpoint of some other model
│   └── TensorError              a tensor is missing, extra, of another shape or another dtype
├── PackagedModelError           a TorchScript or torch.export file that this process cannot run
├── EngineUnavailableError       the library, provider or kernel that was asked for is not here
└── GraphInputError              an input of a graph has the wrong name, shape or dtype
"""

from __future__ import annotations


class FallbackError(Exception):
    """Base of everything this package raises on purpose."""


class CheckpointError(FallbackError):
    """A checkpoint folder that cannot be used; the message says which file and what to do."""


class CheckpointNotFoundError(CheckpointError):
    """The folder, or a file without which no checkpoint works, does not exist."""


class CheckpointFormatError(CheckpointError):
    """A file is not in the format its name promises, or ends too early."""


class ArchitectureError(CheckpointError):
    """The checkpoint is well-formed, but belongs to another model."""


class TensorError(CheckpointError):
    """Tensors are missing or extra, or have another shape or dtype than config.json asks for."""


class PackagedModelError(FallbackError):
    """A packaged model file was written for other versions, or its check did not pass."""


class EngineUnavailableError(FallbackError):
    """A library, an execution provider or a kernel that was asked for is not on this machine."""


class GraphInputError(FallbackError):
    """A graph was called with an input of the wrong name, shape or dtype."""
