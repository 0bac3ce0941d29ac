"""One subscription of this process, by the C library."""

import ctypes
import functools
import json
import threading
import time

from headrace import _library, errors


class Field:
    """What Python needs to know of a field of a batch."""

    def __init__(self, layout):
        self.name = layout.name.decode()
        self.dtype = _library.DTYPE_NAMES[layout.dtype]
        self.ndim = layout.ndim
        self.capacity = layout.shape[0]  # samples that a slot holds at most


class Session:
    """Opened at a cursor. Not thread-safe: the loader holds its lock around every call."""

    def __init__(self, connection, spec, dataset_hash, epoch, position, timeout, return_index=True):
        self._library = _library.library()
        self._generation = _library.generation
        self._closing = threading.Lock()
        self._handle = ctypes.c_void_p()
        text, digest = json.dumps(spec).encode(), dataset_hash.encode()
        self._retry(
            timeout,
            lambda ms: self._library.hr_session_open(
                connection.handle, text, digest, epoch, position, ms, ctypes.byref(self._handle)
            ),
        )
        self.batch = _library.Batch()
        self.addresses = self.batch.fields  # of DLManagedTensors; valid as long as their capsules
        info = self._library.hr_session_info(self._handle).contents
        self.order_version, self.pixel_version = info.order_version, info.pixel_version
        self.fields = [Field(info.fields[i]) for i in range(info.num_fields)]
        self.num_wanted = len(self.fields) - (not return_index)  # the first ones that next() gives; the sample numbers are last
        self.cursor = (epoch, position)
        self.convert_with(None)

    @property
    def id(self):
        """The daemon's number of it; changes when another daemon takes over, or another engine."""
        return self._library.hr_session_info(self._handle).contents.session_id

    @property
    def on_gpu(self):
        """Whether the GPU engine makes the batches; may change when another daemon takes over, and under "auto"."""
        with self._closing:
            return bool(self._handle) and self._library.hr_session_info(self._handle).contents.device_slot_bytes > 0

    def convert_with(self, convert):
        """Sets what take() returns: the fields as DLPack capsules, or what `convert` makes of each capsule."""
        # take() fills self.batch; () if no batch is ready. A capsule that nobody consumes gives its tensor back.
        self.take = self._try_next = functools.partial(
            self._library.try_next_capsules, self._handle, ctypes.byref(self.batch), ctypes.c_uint32(self.num_wanted),
            None if convert is None else ctypes.py_object(convert),
        )  # fmt: skip

    @property
    def cursor(self):
        """Where the next batch starts, as far as we know. Kept in self.batch, so that Ctrl-C cannot come between the two."""
        return (self.batch.next_epoch, self.batch.next_position)

    @cursor.setter
    def cursor(self, cursor):
        self.batch.next_epoch, self.batch.next_position = cursor

    def next(self, timeout_ms):
        """What take() gives, once a batch is ready."""
        capsules = self.take()
        while not capsules:  # a signal handler's exception comes out of the wait, between batches
            self._retry(timeout_ms / 1000, lambda ms: self._library.hr_session_wait(self._handle, ms))
            capsules = self.take()
        return capsules

    def seek(self, epoch, position, timeout):
        self._retry(timeout, lambda ms: self._library.hr_session_seek(self._handle, epoch, position, ms))
        self.cursor = (epoch, position)

    def stats_of_ring(self):
        stats = _library.SessionStats()
        with self._closing:
            if self._handle:
                self._library.hr_session_get_stats(self._handle, ctypes.byref(stats))
        names = ("reconnections", "copied_batches", "slots", "slots_ready", "slots_leased")
        return {name: getattr(stats, name) for name in names}

    def close(self):
        """Ends the session; batches handed out stay. Nothing in a forked child (it is the parent's) and at exit."""
        if self._generation != _library.generation or _library.ended:
            return
        with self._closing:
            handle, self._handle = self._handle, ctypes.c_void_p()
            self.take = self._try_next = None
            if handle:
                self._library.hr_session_close(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()

    @staticmethod
    def _retry(timeout, call):
        deadline = time.monotonic() + timeout
        while True:
            code = call(max(0, round((deadline - time.monotonic()) * 1000)))
            if code != errors.INTERRUPTED:
                return _library.check(code)
