"""Batches in GPU memory: copied ahead from the daemon's slots (docs/python.md, "In GPU memory").

A batch's way here: its slot is leased; copies of its fields are started on the loader's own stream; when the event behind
them has passed, the slot is given back. The host waits for none of this: the stream that a batch is delivered to does.
"""

import collections
import ctypes
import os
import time
import warnings
import weakref

import torch
from torch.utils.dlpack import from_dlpack

from headrace import _library, _text, errors
from headrace._session import Session

# What torch's from_dlpack calls for a capsule, without its search for other protocols.
_tensor_of = getattr(torch._C, "_from_dlpack", from_dlpack)

# The handle of a device's current stream: 5 µs less than a torch.cuda.Stream of it.
_current_handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)

_PORTABLE = 1  # cudaHostRegisterPortable
_ALREADY_REGISTERED = 712
_POLL_SECONDS = 0.001


def check(device):
    """The torch.device, or None for the CPU. Does not initialise CUDA."""
    device = torch.device(device)
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise errors.UnsupportedError(f'device="{device}": batches come to "cpu" or "cuda"')
    if torch.cuda.device_count() == 0:
        raise errors.UnsupportedError(f'device="{device}": torch finds no GPU, use device="cpu"')
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise errors.InvalidArgumentError(f'device="{device}": torch finds {torch.cuda.device_count()} GPU(s)')
    return device


class Gpu:
    """What copying needs of torch.cuda, on one device and a stream of its own. Tests have a fake one."""

    def __init__(self, device):
        try:
            torch.cuda.init()
        except RuntimeError as error:  # in a child that was forked after CUDA was initialised, for one
            raise errors.UnsupportedError(f'device="{device}": {error}') from error
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        # Of the pool of high priority, which hardly anybody else takes streams from: copies queue behind nobody's kernels.
        self.stream = torch.cuda.Stream(self.device, priority=-1)
        self._streams = {}  # handle: stream

    def event(self):
        return torch.cuda.Event()

    def pin(self, address, size):
        with torch.cuda.device(self.device):
            code = int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE))
            if code:
                self._forget_error()
        return code in (0, _ALREADY_REGISTERED)

    def unpin(self, address):
        with torch.cuda.device(self.device):
            if int(torch.cuda.cudart().cudaHostUnregister(address)):
                self._forget_error()

    def _forget_error(self):
        """The runtime remembers a call's error until somebody asks; the next kernel's launch would be blamed for it."""
        try:
            torch.zeros(1, device=self.device)
        except RuntimeError:
            pass

    def _current_stream(self):
        if _current_handle is None:
            return torch.cuda.current_stream(self.device)
        handle = _current_handle(self.device.index)
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.current_stream(self.device)
        return self._streams[handle]

    def copy(self, tensors, event):
        """Starts copies of tensors in pinned memory. They are complete when the event has passed."""
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                return self.copy(tensors, event)
        current = self._current_stream()
        try:  # as `with torch.cuda.stream(…)`, 10 µs faster
            torch.cuda.set_stream(self.stream)
            copies = [tensor.to(self.device, non_blocking=True) for tensor in tensors]
            event.record(self.stream)
        finally:
            torch.cuda.set_stream(current)
        return copies

    def is_idle(self, wait):
        """Whether every copy is done."""
        try:
            if wait:
                self.stream.synchronize()
            return self.stream.query()
        except RuntimeError:
            return True  # the context is lost, and with it every copy

    def deliver(self, copies, event):
        """Lets the caller's current stream use them, behind the event (None: it has passed). Nobody's host waits."""
        current = self._current_stream()
        if event is not None:
            event.wait(current)
        for copy in copies:
            copy.record_stream(current)


class CopyingSession(Session):
    """A session whose batches are copied ahead into GPU memory: next() gives what users get of the fields.

    Two cursors: the library's stands behind the newest batch copied, so after a daemon's death it asks for the one behind
    that; `cursor` and `batch` are those of the batch delivered.
    """

    def __init__(self, gpu, prefetch_factor, *arguments):
        _release_retired()
        self._ring = None
        super().__init__(*arguments)
        self._gpu, self._prefetch_factor = gpu, prefetch_factor
        self._library.hr_session_lease_all(self._handle)
        self._filled = self.batch  # what the library fills
        self._on_gpu, self._on_host = [], []
        for i, field in enumerate(self.fields[: self.num_wanted]):
            if field.dtype == "text":
                self._on_host.append((i, _text.converter(field, self._filled)))
            elif i == len(self.fields) - 1:  # the sample numbers
                self._on_host.append((i, lambda capsule, _: _tensor_of(capsule).clone()))
            else:
                self._on_gpu.append(i)
        self._ahead = collections.deque()  # batches copied and not delivered
        self._pending = collections.deque()  # (batch, views of its slot) of copies that may be running
        self._events = {}  # where a slot's first field lies: the event behind the copies out of that slot
        _live.add(self)

    def next(self, timeout_ms):
        """What users get of the next batch's fields, on the GPU for the caller's current stream."""
        if _retired:
            _release_retired()
        self._give_back()
        ahead = self._ahead
        while len(ahead) <= self._prefetch_factor and self._copy_next():
            pass
        if not ahead:
            self._wait(timeout_ms / 1000)
        batch = ahead.popleft()
        self.cursor, self.batch = batch.cursor, batch
        if batch.copies:
            self._gpu.deliver(batch.copies, None if batch.is_copied else batch.event)
        return batch.values

    def _give_back(self):
        """Drops the views that have been copied; the next look into the ring gives their slots back."""
        pending = self._pending
        while pending and pending[0][0].event.query():
            pending.popleft()[0].is_copied = True

    def _copy_next(self):
        """Starts copying the next batch, if one is ready. Whether it was."""
        capsules = self._try_next(self._handle, self._batch, self.num_wanted)
        if not capsules:
            return False
        batch = _Copied(self._filled)
        views = [_tensor_of(capsules[i]) for i in self._on_gpu]
        if views:
            batch.event = self._event_behind(views[0])
            self._pending.append((batch, views))  # first, in case Ctrl-C comes
            batch.copies = self._gpu.copy(views, batch.event)
        if self._on_host:
            batch.values = values = [None] * len(capsules)
            for i, copy in zip(self._on_gpu, batch.copies):
                values[i] = copy
            for i, convert in self._on_host:
                values[i] = convert(capsules[i], self.addresses[i])
        else:
            batch.values = batch.copies
        self._ahead.append(batch)
        return True

    def _wait(self, seconds):
        """Until a batch is being copied. Slots come back only when copies are seen to be done, so it looks often then."""
        deadline = time.monotonic() + seconds
        while not self._copy_next():
            left = deadline - time.monotonic()
            pending = bool(self._pending)
            try:
                self._retry(min(left, _POLL_SECONDS) if pending else left, self._wait_in_library)
            except errors.DeadlineExceededError:
                if not pending:
                    raise
                if left <= 0:
                    raise errors.DeadlineExceededError(
                        f"no batch at epoch {self.cursor[0]}, position {self.cursor[1]} within {seconds:g} s: "
                        "the GPU has not finished copying earlier ones"
                    ) from None
            self._give_back()

    def _wait_in_library(self, milliseconds):
        return self._library.hr_session_wait(self._handle, milliseconds)

    def _event_behind(self, view):
        """The event for the copies out of a slot, which is registered as pinned when it is seen for the first time."""
        if not self._filled.leased:  # no sample in it: nothing is copied
            return self._gpu.event()
        address = view.data_ptr()
        if address not in self._events:
            self._pin_slot(address)
        return self._events[address]

    def _pin_slot(self, address):
        held = self._library.hr_session_hold_ring(self._handle)
        if self._ring is not None and self._ring.held == held:
            self._library.hr_ring_release(held)
        else:  # the first one, or that of another daemon
            self._retire_ring()
            self._ring, self._events = _PinnedRing(self._gpu, held), {}
        info = self._library.hr_session_info(self._handle).contents
        self._ring.pin(address - info.fields[self._on_gpu[0]].offset, info.slot_bytes)
        self._events[address] = self._gpu.event()

    def _retire_ring(self):
        ring, self._ring = self._ring, None
        if ring is not None:
            _retired.append(ring)

    def seek(self, epoch, position, timeout):
        self._ahead.clear()
        super().seek(epoch, position, timeout)

    def close(self):
        if self._generation != _library.generation or _library.ended:
            return
        self._ahead.clear()
        self._retire_ring()
        _release_retired(wait=True)
        self._pending.clear()
        super().close()

    def __del__(self):
        # No call of CUDA in here: this may run anywhere, in the middle of somebody's graph capture too.
        if self._ring is not None and self._generation == _library.generation and not _library.ended:
            self._retire_ring()
        if getattr(self, "_handle", None):
            super().close()


class _Copied:
    """A batch whose copies have been started."""

    __slots__ = ("epoch", "position", "length", "bad_samples", "cursor", "copies", "event", "is_copied", "values")

    def __init__(self, filled):
        self.epoch, self.position, self.length = filled.epoch, filled.position, filled.length
        self.bad_samples = filled.bad_samples
        self.cursor = (filled.next_epoch, filled.next_position)
        self.copies, self.is_copied = (), False


class _PinnedRing:
    """A ring with slots that are registered as pinned. It is held, so that it stays mapped until release()."""

    def __init__(self, gpu, held):
        self.held, self.gpu, self._slots = held, gpu, set()

    def pin(self, slot, size):
        if self.gpu.pin(slot, size):
            self._slots.add(slot)
        else:
            warnings.warn("CUDA does not register the batches' memory as pinned: copies to the GPU will be slow", stacklevel=2)

    def release(self):
        while self._slots:
            self.gpu.unpin(self._slots.pop())
        _library.library().hr_ring_release(self.held)


_retired = collections.deque()  # rings that no session uses any more: of dead daemons, and of sessions that were dropped


def _release_retired(wait=False):
    """Within next, open and close only. Rings out of which a copy still runs stay, unless it may wait."""
    for _ in range(len(_retired)):
        try:
            ring = _retired.popleft()
        except IndexError:  # another thread was faster
            return
        if ring.gpu.is_idle(wait):
            ring.release()
        else:
            _retired.append(ring)


_live = weakref.WeakSet()


def _keep_parents_objects():
    """In a forked child: objects of the parent's CUDA must not be destroyed, at exit neither: that would call CUDA."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object([*_live, *_retired]))
    _live.clear()
    _retired.clear()


os.register_at_fork(after_in_child=_keep_parents_objects)
