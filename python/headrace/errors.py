"""What can go wrong. Every error of this package is a HeadraceError and says what it was about."""

import json


class HeadraceError(Exception):
    """Base of all errors of this package."""


class InvalidArgumentError(HeadraceError, ValueError):
    """An argument of the loader that the daemon cannot serve; the message names it."""


class DatasetNotFoundError(HeadraceError, FileNotFoundError):
    """No dataset at that path."""


class NotAllowedError(HeadraceError, PermissionError):
    """The daemon does not serve this path, or not this user."""


class DeadlineExceededError(HeadraceError, TimeoutError):
    """Nothing came within `timeout` seconds; the message says what was waited for. The loader stays usable."""


class ResourceExhaustedError(HeadraceError):
    """The session's slots do not fit into the daemon's memory budget."""


class DatasetChangedError(HeadraceError):
    """The dataset is not the one that this loader, its state or another rank began with."""


class UnsupportedError(HeadraceError, NotImplementedError):
    """Something that this build cannot do."""


class DaemonError(HeadraceError, RuntimeError):
    """The daemon cannot be reached or started, or answered with an error that has no class of its own."""


class DataLossError(DaemonError):
    """Something of the dataset is damaged; the message names it."""


class BadSampleError(HeadraceError, RuntimeError):
    """A sample could not be decoded under on_bad_sample="fail". The next call goes on behind its batch.

    Attributes: dataset, shard, sample (its number), name (the file, below the packed folder) and reason.
    """

    def __init__(self, message, dataset=None, shard=None, sample=None, name=None, reason=None):
        super().__init__(message)
        self.dataset, self.shard, self.sample, self.name, self.reason = dataset, shard, sample, name, reason

    def __reduce__(self):
        return type(self), (*self.args, self.dataset, self.shard, self.sample, self.name, self.reason)


# Codes of client/headrace.h.
OK = 0
OUT_OF_RANGE = 11
INTERRUPTED = 100
BAD_SAMPLE = 101
_FAILED_PRECONDITION = 9
_CLASSES = {
    3: InvalidArgumentError,
    4: DeadlineExceededError,
    5: DatasetNotFoundError,
    7: NotAllowedError,
    8: ResourceExhaustedError,
    OUT_OF_RANGE: InvalidArgumentError,
    12: UnsupportedError,
    15: DataLossError,
}


def from_code(code, message):
    """The exception for a code of the C library and its message."""
    if code == BAD_SAMPLE:
        return _bad_sample(message)
    if code == _FAILED_PRECONDITION and "changed" in message:
        return DatasetChangedError(message)
    return _CLASSES.get(code, DaemonError)(message)


def _bad_sample(message):
    try:
        report = json.loads(message)
    except ValueError:
        return BadSampleError(message)
    names = ("dataset", "shard", "sample", "name", "reason")
    values = {name: report.get(name) for name in names}
    text = "dataset {dataset}, shard {shard}, sample {sample}, file {name}: {reason}".format(**values)
    return BadSampleError(text, **values)
