"""Checks the loader's arguments and turns them into the spec of docs/protocol.md."""

import operator
import os

from headrace import transforms
from headrace.errors import InvalidArgumentError

DTYPES = ("float32", "float16", "bfloat16", "uint8")
_FORMATS = {"contiguous": "contiguous", "contiguous_format": "contiguous", "channels_last": "channels_last"}

# Arguments of torch.utils.data.DataLoader that have nothing to do here, and those that would change what comes out.
_IGNORED = {
    "persistent_workers",
    "multiprocessing_context",
    "worker_init_fn",
    "generator",
    "in_order",
    "pin_memory_device",
}
_REFUSED = {
    "sampler": "the order comes from shuffle, seed and epoch, each rank's part from torch.distributed (or rank and "
    "world_size); loader.sampler.set_epoch works",
    "batch_sampler": "the order comes from shuffle, seed and epoch; give batch_size",
    "collate_fn": "batches come ready made from the daemon; work on them in the loop",
}


# Of headrace.torch.DataLoader only.
_OF_TORCH = {"device", "pin_memory"}


def check_foreign(arguments, cls):
    """PyTorch's further arguments: harmless ones pass, those that would change the batches raise."""
    for name, value in arguments.items():
        if name in _REFUSED:
            if value is not None:
                raise InvalidArgumentError(f"{name} is not supported: {_REFUSED[name]}")
        elif name in _OF_TORCH:
            raise TypeError(f"{cls.__name__}() makes numpy arrays and has no {name!r}: use headrace.torch.DataLoader")
        elif name not in _IGNORED:
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument {name!r}")


def dataset_path(dataset):
    try:
        return os.path.abspath(os.path.expanduser(os.fsdecode(dataset)))
    except TypeError:
        raise InvalidArgumentError(
            f"dataset must be the path of a dataset made by `headrace pack`, not {type(dataset).__name__}"
        ) from None


def dtype_name(dtype):
    """ "float32", torch.float32, numpy.float32 or numpy.dtype("float32") as "float32"."""
    name = str(dtype.__name__ if isinstance(dtype, type) else dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InvalidArgumentError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return name


def format_name(memory_format):
    name = str(memory_format).removeprefix("torch.")
    if name not in _FORMATS:
        raise InvalidArgumentError(f"memory_format {memory_format!r} is neither contiguous_format nor channels_last")
    return _FORMATS[name]


def last_batch_policy(last_batch, drop_last, world_size):
    if last_batch not in (None, "partial", "pad", "drop"):
        raise InvalidArgumentError(f'last_batch={last_batch!r} is not one of "partial", "pad", "drop"')
    if drop_last:
        if last_batch not in (None, "drop"):
            raise InvalidArgumentError(f"drop_last=True contradicts last_batch={last_batch!r}")
        return "drop"
    return last_batch or ("partial" if world_size == 1 else "pad")


def whole(value, name, low, high):
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{name}={value!r} is not a whole number") from None
    if not low <= number <= high:
        raise InvalidArgumentError(f"{name}={number} is not in {low}…{high}")
    return number


def seconds(timeout):
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidArgumentError(f"timeout={timeout!r}: expected seconds above 0 (every wait here has an end)")
    return min(float(timeout), 2_000_000.0)  # milliseconds are a C int


def make_spec(path, *, transform, dtype, memory_format, fields, batch_size, rank, world_size, shuffle, seed, last_batch,
              on_bad_sample, max_bad, num_workers, prefetch_factor, engine):  # fmt: skip
    """The spec, complete but for `fields` (None: to be filled in from the dataset's description)."""
    if shuffle not in (None, False, True, "blocks"):
        raise InvalidArgumentError(f'shuffle={shuffle!r} is not one of False, True, "blocks"')
    if on_bad_sample not in ("fail", "skip", "substitute"):
        raise InvalidArgumentError(f'on_bad_sample={on_bad_sample!r} is not one of "fail", "skip", "substitute"')
    if max_bad is not None:
        max_bad = whole(max_bad, "max_bad", 0, 10_000)
        if on_bad_sample == "fail":
            raise InvalidArgumentError('max_bad limits on_bad_sample="skip" and "substitute"; "fail" passes over no bad sample')
    if engine not in ("auto", "cpu", "gpu"):
        raise InvalidArgumentError(f'engine={engine!r} is not one of "auto", "cpu", "gpu"')
    steps = transforms.to_ours(transform, dtype)
    return {
        "dataset": path,
        "fields": None if fields is None else [fields] if isinstance(fields, str) else list(fields),
        "batch_size": whole(batch_size, "batch_size", 1, 65536),
        "rank": rank,
        "world_size": world_size,
        "seed": whole(seed, "seed", 0, 2**64 - 1),
        "shuffle": shuffle if shuffle == "blocks" else bool(shuffle),
        "last_batch": last_batch,
        "on_bad_sample": on_bad_sample,
        "max_bad": max_bad,
        "prefetch_factor": whole(2 if prefetch_factor is None else prefetch_factor, "prefetch_factor", 1, 62),
        # 0 is PyTorch's default and its "no extra processes": no wish here.
        "num_workers": whole(num_workers or 0, "num_workers", 0, 4096) or None,
        "engine": engine,
        "transform": [step.spec() for step in steps],
        "dtype": dtype,
        "memory_format": memory_format,
    }
