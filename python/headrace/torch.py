"""`DataLoader`: batches as torch tensors. Described in docs/python.md.

    import headrace.torch as hr
    loader = hr.DataLoader("/data/train", batch_size=256, shuffle=True,
                           transform=[hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize()])
"""

import warnings

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "headrace.torch needs PyTorch (pip install torch); headrace.Loader gives numpy arrays without it", name="torch"
    ) from None
from torch.utils.dlpack import from_dlpack

from headrace import _arguments, _copying, _gpu
from headrace.errors import (  # noqa: F401
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
from headrace.transforms import (  # noqa: F401
    CenterCrop,
    InterpolationMode,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)


# What torch's from_dlpack calls for a capsule, without its search for other protocols.
_new_tensor = getattr(torch._C, "_from_dlpack", from_dlpack)


def _from_capsule(capsule, _):
    return _new_tensor(capsule)


class DataLoader(Loader):
    """Iterates over batches as torch tensors; names, order and defaults of the arguments are PyTorch's where it has them.

    Arguments beside those of headrace.Loader:
        device: "cpu" (tensors are views of shared memory), "cuda" (the device that is current when the first batch is taken)
            or "cuda:1" (copied there on a stream of the loader's own; next() does not wait for the copy).
        engine: "gpu": the GPU that the batches go to decodes them; "cpu": the daemon's threads do; "auto": the GPU where there are
            fewer than four of them for each trainer, or once they do not keep up with the loop.
        dtype, memory_format: torch's, or their names; bfloat16 too.
        pin_memory: copies batches into pinned memory for your own .to(device, non_blocking=True).

    Yields a tuple of tensors per step: images (N, C, H, W), then the other `fields` in their order; text as a list of str.
    """

    def __init__(self, dataset, batch_size=1, shuffle=False, *, transform=None, drop_last=False, last_batch=None, seed=0,
                 device="cpu", dtype=torch.float32, memory_format=torch.contiguous_format, fields=None,
                 return_index=False, rank=None, world_size=None, num_workers=None, prefetch_factor=2, pin_memory=False,
                 timeout=60, on_bad_sample="fail", max_bad=None, engine="auto", socket=None, **pytorch):  # fmt: skip
        self._device, self._static, self._advancing = _gpu.check(device), None, None
        super().__init__(
            dataset, batch_size, shuffle, transform=transform, drop_last=drop_last, last_batch=last_batch, seed=seed,
            dtype=dtype, memory_format=memory_format, fields=fields, return_index=return_index, rank=rank,
            world_size=world_size, num_workers=num_workers, prefetch_factor=prefetch_factor, timeout=timeout,
            on_bad_sample=on_bad_sample, max_bad=max_bad, engine=engine, socket=socket, **pytorch)  # fmt: skip
        self._arguments.update(device=device, pin_memory=pin_memory)
        self.pin_memory = bool(pin_memory)
        if self.pin_memory and self._device is None and not torch.cuda.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=2,
            )

    def _dtype_name(self, dtype):
        return _arguments.dtype_name(dtype)

    def _open_session(self, connection, spec, *arguments):
        if self._device is None:
            return super()._open_session(connection, spec, *arguments)
        gpu = _gpu.Gpu(self._device)
        node, uuid = gpu.numa_node(), gpu.uuid()
        spec = spec if node is None else {**spec, "numa_node": node}
        if uuid is not None and spec["engine"] != "cpu":
            spec = {**spec, "gpu": uuid}
        copy = lambda capsule, _: _new_tensor(capsule).clone()  # noqa: E731
        return _copying.CopyingSession(gpu, self.prefetch_factor, copy, connection, spec, *arguments)

    def static_batch(self):
        """Tensors at fixed addresses for a whole batch, which advance() fills: for steps captured in a CUDA graph.

        The same ones every time. Zeros until the first advance(). device="cuda" only, and no text among the fields.
        """
        if self._device is None:
            raise UnsupportedError('static_batch() is for CUDA graphs: it needs device="cuda"')
        if self._static is None:
            self._check_process()
            with self._lock:
                self._check_open()
                self._align()
                if self._session is None:
                    raise DataLossError(f"{self!r} has no step, so there is no batch")
                self._static = self._session.new_batch()
        return self._static

    def advance(self):
        """Brings the next batch into static_batch()'s tensors, for what the current stream does behind this call; returns its
        number of samples. Call it before each graph.replay().

        Epochs follow each other: the first call behind an epoch's last batch begins the next one. Of a batch that is shorter than
        the others (drop_last=True avoids them) only the first samples are written. Waits and raises as iterating does.
        """
        static = self.static_batch()
        iteration = self._iteration and self._iteration()
        if iteration is None or iteration is not self._advancing or iteration.ended is not None:
            self._advancing = iter(self)
        values = next(self._advancing, None)
        if values is None:
            self._advancing = iter(self)
            values = next(self._advancing)
        length = len(values[0])
        for tensor, value in zip(static, values):
            tensor[:length].copy_(value, non_blocking=True)
        return length

    def _batch_converter(self, fields, session):
        if self._device is not None:
            return None
        if self.pin_memory or any(field.dtype == "text" for field in fields):
            return super()._batch_converter(fields, session)
        session.convert_with(_new_tensor)
        return None

    def _converter(self, field):
        if not self.pin_memory:
            return _from_capsule
        copy = torch.Tensor.pin_memory if torch.cuda.is_available() else torch.Tensor.clone
        return lambda capsule, _: copy(from_dlpack(capsule))
