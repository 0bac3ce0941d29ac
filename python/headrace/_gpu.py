"""What copying batches needs of CUDA, on one device: a stream, memory of torch's allocator, events, pinned memory.

torch does what must be torch's (memory, streams); copies, and events where speed counts, go to the driver directly: a
tensor.to() with a pinned source costs 10 µs of the host, an empty tensor and the driver's copy 7.
"""

import ctypes
import os

import torch

from headrace import _library, errors

_PORTABLE = 1  # cudaHostRegisterPortable
_ALREADY_REGISTERED = 712
_NOT_READY = 600

# The handle of a device's current stream: 5 µs less than a torch.cuda.Stream of it.
_current_handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_set_stream = getattr(torch._C, "_cuda_setStream", None)


def _use(stream):
    """torch.cuda.set_stream, 3 µs faster."""
    if _set_stream is None:
        torch.cuda.set_stream(stream)
    else:
        _set_stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def check(device):
    """The torch.device, or None for the CPU. Does not initialise CUDA."""
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise errors.InvalidArgumentError(f"device={device!r}: {str(error).splitlines()[0]}") from None
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise errors.UnsupportedError(f'device="{device}": batches come to "cpu" or "cuda"')
    if torch.cuda.device_count() == 0:
        raise errors.UnsupportedError(f'device="{device}": torch finds no GPU, use device="cpu"')
    if device.index is not None and device.index >= torch.cuda.device_count():
        raise errors.InvalidArgumentError(f'device="{device}": torch finds {torch.cuda.device_count()} GPU(s)')
    return device


class Field:
    """How a field lies in a slot, and in GPU memory likewise. Strides in elements."""

    def __init__(self, dtype, shape, strides):
        self.dtype = getattr(torch, dtype)
        self.shape, self.strides = tuple(shape[1:]), tuple(strides)
        self.sample_bytes = self.strides[0] * self.dtype.itemsize


class Slot:
    """Where the fields of a slot lie, and an event behind the newest copies out of it."""

    __slots__ = ("sources", "event", "handle", "job", "pieces", "length", "given_back")

    def __init__(self, sources, event):
        self.sources, self.event = sources, event
        self.handle = event.cuda_event
        self.given_back = False  # by the GPU, behind the copies
        self.job = self.pieces = self.length = None  # the driver's: hr_gpu_copy, its pieces, and for how many samples they are


class DeviceMemory:
    """A daemon's slots in GPU memory, as this process has them mapped."""

    def __init__(self, address, size):
        self.address, self.size = address, size


class Gpu:
    """Copies slots into tensors on a stream of its own."""

    def __init__(self, device):
        try:
            torch.cuda.init()
        except RuntimeError as error:  # in a child that was forked after CUDA was initialised, for one
            raise errors.UnsupportedError(f'device="{device}": {error}') from error
        self.device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        # Of the pool of high priority, which hardly anybody else takes streams from: copies queue behind nobody's kernels.
        self.stream = torch.cuda.Stream(self.device, priority=-1)
        self._streams = {}  # handle: stream
        self._driver = _driver()

    def numa_node(self):
        """The number of the memory node that the GPU hangs on; None where there is one node only, or nobody knows."""
        if self._driver is None or not os.path.exists("/sys/devices/system/node/node1"):
            return None
        try:
            with open(f"/sys/bus/pci/devices/{self._driver.pci_address(self.device.index)}/numa_node") as file:
                number = int(file.read())
        except (OSError, ValueError):
            return None
        return number if number >= 0 else None

    def uuid(self):
        """CUDA's identity of the GPU, 32 hex digits; None where the GPU engine cannot serve it."""
        return self._driver and self._driver.uuid(self.device.index)

    def map(self, descriptor, size):
        """A daemon's GPU memory, to be read only, until unmap(). Takes the descriptor."""
        try:
            with torch.cuda.device(self.device):
                self.stream.query()  # gives this thread a context
                return self._driver.map(descriptor, size, self.device.index)
        finally:
            os.close(descriptor)

    def unmap(self, memory):
        with torch.cuda.device(self.device):
            self._driver.unmap(memory)

    def give_back_by_gpu(self, slot, number, ring, word):
        """From now on the GPU writes the slot's ticket to its `released` word, behind the copies. `word` lies in pinned memory."""
        slot.job.slot, slot.job.ring = number, ring
        slot.job.released = self._driver.address_for_gpu(word)
        slot.given_back = True

    def slot(self, sources, from_gpu, is_pinned=True):
        """`sources`: addresses; `from_gpu`: which of them are the GPU's. `is_pinned`: whether the host's are."""
        event = torch.cuda.Event()
        event.record(self.stream)  # only now it has a handle
        slot = Slot(sources, event)
        if any(from_gpu) and not is_pinned:
            raise errors.DaemonError(f"CUDA does not register the labels' memory as pinned, which engine=\"gpu\" needs on {self.device}")
        if self._driver is not None and is_pinned:
            slot.job = _library.GpuCopy(self._driver.functions, self.stream.cuda_stream, slot.handle, len(sources))
            slot.pieces = [slot.job.pieces[i] for i in range(len(sources))]
            for piece, source, is_gpus in zip(slot.pieces, sources, from_gpu):
                piece.source, piece.from_gpu = source, is_gpus
        return slot

    def pin(self, address, size):
        with torch.cuda.device(self.device):
            code = int(torch.cuda.cudart().cudaHostRegister(address, size, _PORTABLE))
            if code:
                self._forget_error()
        # Copies from what is not pinned take their time: torch gives the interpreter's lock back for them.
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

    def zeros(self, field, length):
        shape = (length, *field.shape)
        return torch.empty_strided(shape, field.strides, dtype=field.dtype, device=self.device).zero_()

    def numbers(self, length):
        return torch.zeros(length, dtype=torch.int64)

    def copy(self, fields, length, slot):
        """Starts copies of the first `length` samples. The tensors are complete when the slot's event has passed. `slot` None:
        there is no sample."""
        if _current_device() != self.device.index or torch.is_inference_mode_enabled():
            # A tensor that is made in inference mode can never be trained with, and this one may be for a later loop.
            with torch.cuda.device(self.device), torch.inference_mode(False):
                return self.copy(fields, length, slot)
        current = self._current_stream()
        try:  # as `with torch.cuda.stream(…)`, 10 µs faster
            _use(self.stream)
            copies = [
                torch.empty_strided((length, *field.shape), field.strides, dtype=field.dtype, device=self.device)
                for field in fields
            ]
            if slot is not None and not self._copy_by_driver(fields, length, slot, copies):
                self._copy_by_torch(fields, length, slot, copies)
        finally:
            _use(current)
        return copies

    def _copy_by_driver(self, fields, length, slot, copies):
        if self._driver is None or slot.job is None:
            return False
        if slot.length != length:
            slot.length = length
            for piece, field in zip(slot.pieces, fields):
                piece.bytes = length * field.sample_bytes
        for piece, copy in zip(slot.pieces, copies):
            piece.to = copy.data_ptr()
        # Not 0: this thread has not used the GPU yet, so it has no context; torch gives it one.
        if self._driver.start(slot.job) == 0:
            return True
        if not slot.given_back:
            return False
        self.stream.query()  # of these torch can copy none
        code = self._driver.start(slot.job)
        if code:
            raise errors.DaemonError(f"a copy on {self.device} failed: CUDA's error {code}")
        return True

    def _copy_by_torch(self, fields, length, slot, copies):
        for field, source, copy in zip(fields, slot.sources, copies):
            memory = (ctypes.c_char * (length * field.sample_bytes)).from_address(source)
            copy.copy_(torch.frombuffer(memory, dtype=field.dtype).as_strided(copy.shape, field.strides), non_blocking=True)
        slot.event.record(self.stream)

    def has_copied(self, slot):
        """Whether the newest copies out of the slot are done."""
        code = self._driver.query(slot.handle) if self._driver is not None else -1
        return code == 0 or (code != _NOT_READY and slot.event.query())  # which raises torch's error, if it is one

    def is_idle(self, wait):
        """Whether every copy is done."""
        try:
            if wait:
                self.stream.synchronize()
            return self.stream.query()
        except RuntimeError:
            return True  # the context is lost, and with it every copy

    def deliver(self, copies, slot):
        """Lets the caller's current stream use them, behind the slot's copies (None: they are done). Nobody's host waits."""
        current = self._current_stream()
        if slot is not None:
            slot.event.wait(current)
        for copy in copies:
            copy.record_stream(current)


class _Driver:
    """Functions of CUDA's driver. They return at once, so they keep the interpreter's lock (PyDLL)."""

    def __init__(self, library):
        functions = (library.cuMemcpyHtoDAsync_v2, library.cuEventRecord, library.cuMemcpyDtoDAsync_v2, library.cuStreamWriteValue32_v2)
        address = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
        self.functions = ctypes.pointer(_library.CudaFunctions(*address))
        self.start = _library.library().gpu_copy_start
        self.query = library.cuEventQuery
        self.query.argtypes = [ctypes.c_void_p]
        self._library = library

    def uuid(self, index):
        device, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
        if self._library.cuDeviceGet(ctypes.byref(device), index) or self._library.cuDeviceGetUuid_v2(uuid, device):
            return None
        return uuid.raw.hex()

    def map(self, descriptor, size, index):
        handle, address = ctypes.c_uint64(), ctypes.c_uint64()
        self._check("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), 1)
        try:
            self._check("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0),
                        ctypes.c_uint64(0))  # fmt: skip
            self._check("cuMemMap", address, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        finally:
            self._library.cuMemRelease(handle)
        memory = DeviceMemory(address.value, size)
        access = (ctypes.c_int * 3)(1, index, 1)  # CUmemAccessDesc: a device, its number, reading
        try:
            self._check("cuMemSetAccess", address, ctypes.c_size_t(size), access, ctypes.c_size_t(1))
        except errors.HeadraceError:
            self.unmap(memory)
            raise
        return memory

    def unmap(self, memory):
        address, size = ctypes.c_uint64(memory.address), ctypes.c_size_t(memory.size)
        self._library.cuMemUnmap(address, size)
        self._library.cuMemAddressFree(address, size)

    def address_for_gpu(self, address):
        found = ctypes.c_uint64()
        self._check("cuMemHostGetDevicePointer_v2", ctypes.byref(found), ctypes.c_void_p(address), 0)
        return found.value

    def _check(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code:
            raise errors.DaemonError(f"the daemon's GPU memory cannot be used: {name} gave CUDA's error {code}")

    def pci_address(self, index):
        """As in /sys/bus/pci/devices: "0000:1b:00.0"."""
        device, address = ctypes.c_int(), ctypes.create_string_buffer(32)
        if self._library.cuDeviceGet(ctypes.byref(device), index) or self._library.cuDeviceGetPCIBusId(address, 32, device):
            return ""
        return address.value.decode().lower()


def _driver():
    """None where torch is built for another vendor's."""
    try:
        return _Driver(ctypes.PyDLL("libcuda.so.1")) if torch.version.cuda else None
    except (OSError, AttributeError):
        return None
