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

from headrace import _gpu, _library, _text, errors
from headrace._session import Session

_POLL_SECONDS = 0.001
_PAGE, _CONTROL_BYTES = 4096, 16384  # of a ring's memory (docs/protocol.md)


class CopyingSession(Session):
    """A session whose batches are copied ahead into GPU memory: next() gives what users get of the fields.

    Two cursors: the library's stands behind the newest batch copied, so after a daemon's death it asks for the one behind
    that; `cursor` and `batch` belong to the batch delivered.
    """

    def __init__(self, gpu, prefetch_factor, index_converter, *arguments):
        _release_retired()
        self._ring = None
        super().__init__(*arguments)
        self._connection, self._timeout = arguments[0], arguments[5]
        del self.take  # for the one below
        self._gpu, self._prefetch_factor = gpu, prefetch_factor
        self._library.hr_session_lease_all(self._handle)
        self._filled = self.batch  # what the library fills
        info = self._library.hr_session_info(self._handle).contents
        self._on_gpu, self._on_host, self._layouts = [], [], []
        for i, field in enumerate(self.fields[: self.num_wanted]):
            layout = info.fields[i]
            if field.dtype == "text":
                self._on_host.append((i, _text.converter(field, self._filled)))
            elif i == len(self.fields) - 1:  # the sample numbers
                self._on_host.append((i, index_converter))
            else:
                self._on_gpu.append(i)
                self._layouts.append(_gpu.Field(field.dtype, layout.shape[: field.ndim], layout.strides[: field.ndim]))
        self._ahead = collections.deque()  # batches copied and not delivered
        self._pending = collections.deque()  # (batch, capsules) of copies that may be running, out of slots that we give back
        self._slots = {}  # of the present ring; by the address of a slot's first managed tensor, which is the library's
        _live.add(self)

    def take(self):
        """What users get of the next batch's fields, on the GPU for the caller's current stream; None if none is ready."""
        if _retired:
            _release_retired()
        self._give_back()
        ahead = self._ahead
        while len(ahead) <= self._prefetch_factor and self._copy_next():
            pass
        return self._deliver() if ahead else None

    def next(self, timeout_ms):
        """What take() gives, once a batch is ready."""
        values = self.take()
        if values is None:
            self._wait(timeout_ms / 1000)
            values = self._deliver()
        return values

    def new_batch(self):
        """Tensors for a whole batch, zeros, in the order of the fields."""
        values = [None] * self.num_wanted
        for i, layout in zip(self._on_gpu, self._layouts):
            values[i] = self._gpu.zeros(layout, self.fields[i].capacity)
        for i, _ in self._on_host:
            if self.fields[i].dtype == "text":
                raise errors.UnsupportedError(f"static_batch(): {self.fields[i].name!r} is text, which no tensor holds; leave it out of fields")
            values[i] = self._gpu.numbers(self.fields[i].capacity)
        return tuple(values)

    def _deliver(self):
        batch = self._ahead.popleft()
        self.batch = batch
        if batch.copies:
            self._gpu.deliver(batch.copies, None if batch.is_copied else batch.slot)
        values, batch.values, batch.copies = batch.values, None, None  # the caller's alone: to be freed when it says, not here
        return tuple(values)

    def _give_back(self):
        """Drops the capsules of slots that have been copied; the next look into the ring gives these back. To look at an event costs
        some µs, so that of the newest copies is not looked at behind another one."""
        pending = self._pending
        while pending and self._gpu.has_copied(pending[0][0].slot):
            pending.popleft()[0].is_copied = True
            if len(pending) == 1:
                break

    def _copy_next(self):
        """Starts copying the next batch, if one is ready. Whether it was."""
        capsules = self._try_next()
        if not capsules:
            return False
        batch = _Copied(self._filled)
        # First what lies on the host: once the copies are started the GPU may give the slot back at any time.
        values = [convert(capsules[i], self.addresses[i]) for i, convert in self._on_host]
        if self._on_gpu:
            if self._filled.leased:
                try:
                    batch.slot = self._slots.get(self.addresses[self._on_gpu[0]]) or self._new_slot()
                except errors.DeadlineExceededError:
                    raise
                except errors.HeadraceError:
                    if self._lost_before(batch):
                        return False
                    raise
                self._pending.append((batch, capsules))  # first, in case Ctrl-C comes
            batch.copies = self._gpu.copy(self._layouts, batch.length, batch.slot)
            if batch.slot is not None and batch.slot.given_back:
                self._pending.pop()  # nobody needs to see that the copies are done
        if values:
            batch.values = ordered = [None] * len(capsules)
            for i, copy in zip(self._on_gpu, batch.copies):
                ordered[i] = copy
            for (i, _), value in zip(self._on_host, values):
                ordered[i] = value
        else:
            batch.values = batch.copies
        self._ahead.append(batch)
        return True

    def _lost_before(self, batch):
        """Goes back to the batch, of which nothing was copied. Whether its daemon is gone: the next one makes it again then."""
        self._retry(self._timeout, lambda ms: self._library.hr_session_seek(self._handle, batch.epoch, batch.position, ms))
        held = self._library.hr_session_hold_ring(self._handle)
        self._library.hr_ring_release(held)
        return not held

    def _wait(self, seconds):
        """Until a batch is being copied. Slots come back only when copies are seen to be done, so it looks often then."""
        deadline = time.monotonic() + seconds
        while not self._copy_next():
            left = deadline - time.monotonic()
            pending = bool(self._pending)  # of slots that the GPU gives back the daemon takes note by itself
            try:
                self._retry(min(left, _POLL_SECONDS) if pending else left, self._wait_in_library)
            except errors.DeadlineExceededError:
                if not pending:
                    raise
                if left <= 0:
                    epoch, position = self.cursor
                    raise errors.DeadlineExceededError(
                        f"no batch at epoch {epoch}, position {position} within {seconds:g} s: "
                        "the GPU has not finished copying earlier ones"
                    ) from None
            self._give_back()

    def _wait_in_library(self, milliseconds):
        return self._library.hr_session_wait(self._handle, milliseconds)

    def _new_slot(self):
        """The slot of the batch just taken, seen for the first time: registers its memory as pinned."""
        held = self._library.hr_session_hold_ring(self._handle)
        info = self._library.hr_session_info(self._handle).contents
        if self._ring is not None and self._ring.held == held:
            self._library.hr_ring_release(held)
        else:  # the first one, or that of another daemon
            self._retire_ring()
            self._ring, self._slots = _PinnedRing(self._gpu, held), {}
        if info.device_slot_bytes and self._ring.device is None:
            self._ring.map(*self._connection.device_memory(info.session_id, self._timeout))
        ring, gpu = self._ring, self._gpu
        sources, from_gpu, is_pinned = [], [], True
        for i in self._on_gpu:
            data, field = _library.ManagedTensor.from_address(self.addresses[i]).data or 0, info.fields[i]
            from_gpu.append(ring.device is not None and i == info.device_field)
            if from_gpu[-1]:
                number = (data - field.offset) // info.device_slot_bytes
                data += ring.device.address
            else:
                is_pinned = ring.pin(data - field.offset, info.slot_bytes) and is_pinned
            sources.append(data)
        slot = self._slots[self.addresses[self._on_gpu[0]]] = gpu.slot(sources, from_gpu, is_pinned)
        if any(from_gpu):
            gpu.give_back_by_gpu(slot, number, held, ring.released_word(number))
        return slot

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

    __slots__ = ("epoch", "position", "length", "bad_samples", "next_epoch", "next_position", "copies", "slot", "is_copied",
                 "values")  # fmt: skip

    def __init__(self, filled):
        self.epoch, self.position, self.length = filled.epoch, filled.position, filled.length
        self.bad_samples = filled.bad_samples
        self.next_epoch, self.next_position = filled.next_epoch, filled.next_position
        self.copies, self.slot, self.is_copied = (), None, False


class _PinnedRing:
    """A ring with slots that are registered as pinned. It is held, so that it stays mapped until release()."""

    def __init__(self, gpu, held):
        self.held, self.gpu, self._slots = held, gpu, set()
        self.device = None  # with the GPU engine: where its batches lie

    def map(self, descriptor, size):
        self.device = self.gpu.map(descriptor, size)
        self.pin(self.released_word(0) & ~(_PAGE - 1), _CONTROL_BYTES)  # so that the GPU can write into it

    def released_word(self, slot):
        return _library.library().hr_ring_released_word(self.held, slot)

    def pin(self, slot, size):
        """Whether it is pinned."""
        if slot in self._slots:
            return True
        if not self.gpu.pin(slot, size):
            warnings.warn("CUDA does not register the batches' memory as pinned: copies to the GPU will be slow", stacklevel=2)
            return False
        self._slots.add(slot)
        return True

    def release(self):
        while self._slots:
            self.gpu.unpin(self._slots.pop())
        if self.device is not None:
            self.gpu.unmap(self.device)
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
