"""Headrace: batches of decoded and augmented samples from the node's daemon.

`headrace.torch.DataLoader` gives torch tensors, `headrace.Loader` numpy arrays. Both are described in docs/python.md.
"""

from headrace.errors import (
    BadSampleError,
    DaemonError,
    DataLossError,
    DatasetChangedError,
    DatasetNotFoundError,
    DeadlineExceededError,
    HeadraceError,
    InvalidArgumentError,
    NotAllowedError,
    ResourceExhaustedError,
    UnsupportedError,
)
from headrace.loader import Loader
from headrace.transforms import (
    CenterCrop,
    InterpolationMode,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)

__all__ = [
    "BadSampleError",
    "CenterCrop",
    "DaemonError",
    "DataLossError",
    "DatasetChangedError",
    "DatasetNotFoundError",
    "DeadlineExceededError",
    "HeadraceError",
    "InterpolationMode",
    "InvalidArgumentError",
    "Loader",
    "Normalize",
    "NotAllowedError",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ResourceExhaustedError",
    "UnsupportedError",
]


def __getattr__(name):
    if name == "__version__":  # the library's, so that there is one number only
        from headrace import _library

        return _library.library().hr_version().decode()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
