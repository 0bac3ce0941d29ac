"""The C library: where it is, its structs and functions (client/headrace.h, client/protocol.h), forks and exit."""

import atexit
import ctypes
import os
import shutil
import sys
import sysconfig
import threading
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t  # noqa: F401
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from pathlib import Path

from headrace import errors

MAX_FIELDS = 16

# Message types of client/protocol.h.
DESCRIBE, SAMPLE, STATS, AUDIT, DEVICE_MEMORY = 2, 3, 4, 5, 8

# hr_dtype of core/slot/slot_layout.h.
DTYPE_NAMES = {0: "uint8", 1: "float16", 2: "bfloat16", 3: "float32", 4: "int64", 5: "float64", 6: "text"}


class ConnectOptions(ctypes.Structure):
    _fields_ = [
        ("socket", c_char_p),
        ("executable", c_char_p),
        ("arguments", POINTER(c_char_p)),
        ("grace_ms", c_int32),
    ]


class FieldLayout(ctypes.Structure):
    _fields_ = [
        ("name", c_char * 32),
        ("dtype", c_uint32),
        ("ndim", c_uint32),
        ("shape", c_int64 * 4),
        ("strides", c_int64 * 4),
        ("offset", c_uint64),
        ("bytes", c_uint64),
    ]


class OpenAnswer(ctypes.Structure):
    _fields_ = [
        ("session_id", c_uint64),
        ("dataset_size", c_uint64),
        ("dataset_hash", c_char * 40),
        ("order_version", c_uint32),
        ("pixel_version", c_uint32),
        ("num_slots", c_uint32),
        ("first_ticket", c_uint32),
        ("num_fields", c_uint32),
        ("batch_size", c_uint32),
        ("slot_bytes", c_uint64),
        ("memfd_bytes", c_uint64),
        ("error_offset", c_uint64),
        ("device_slot_bytes", c_uint64),
        ("device_field", c_uint32),
        ("may_change", c_uint32),
        ("fields", FieldLayout * MAX_FIELDS),
    ]


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h, flattened."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("dtype_code", c_uint8),
        ("dtype_bits", c_uint8),
        ("dtype_lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
        ("manager_ctx", c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, c_void_p)),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        ("num_fields", c_uint32),
        ("length", c_uint32),
        ("epoch", c_uint64),
        ("position", c_uint64),
        ("next_epoch", c_uint64),
        ("next_position", c_uint64),
        ("bad_samples", c_uint32),
        ("leased", c_uint32),
        ("fields", c_void_p * MAX_FIELDS),
    ]


class SessionStats(ctypes.Structure):
    _fields_ = [
        ("batches", c_uint64),
        ("samples", c_uint64),
        ("bad_samples", c_uint64),
        ("reconnections", c_uint64),
        ("waited_ns", c_uint64),
        ("copied_batches", c_uint64),
        ("slots", c_uint32),
        ("slots_ready", c_uint32),
        ("slots_leased", c_uint32),
        ("reserved", c_uint32),
    ]


class CudaFunctions(ctypes.Structure):
    """hr_cuda_functions of client/gpu_copy.h: addresses in CUDA's driver."""

    _fields_ = [
        (name, c_void_p) for name in ("cuMemcpyHtoDAsync", "cuEventRecord", "cuMemcpyDtoDAsync", "cuStreamWriteValue32")
    ]


class GpuCopyPiece(ctypes.Structure):
    _fields_ = [("to", c_uint64), ("source", c_uint64), ("bytes", c_size_t), ("from_gpu", c_uint64)]


class GpuCopy(ctypes.Structure):
    """hr_gpu_copy."""

    _fields_ = [
        ("cuda", POINTER(CudaFunctions)),
        ("stream", c_void_p),
        ("event", c_void_p),
        ("num_pieces", c_uint32),
        ("slot", c_uint32),
        ("released", c_uint64),
        ("ring", c_void_p),
        ("pieces", GpuCopyPiece * MAX_FIELDS),
    ]


class PythonFunctions(ctypes.Structure):
    _fields_ = [
        (name, c_void_p)
        for name in (
            "PyCapsule_IsValid", "PyCapsule_GetPointer", "PyCapsule_New", "PyTuple_New", "PyTuple_SetItem", "Py_DecRef",
            "PyObject_CallFunctionObjArgs", "PyErr_NoMemory",
        )  # fmt: skip
    ]


_FUNCTIONS = {  # name: (result, arguments)
    "hr_last_error": (c_char_p, []),
    "hr_version": (c_char_p, []),
    "hr_client_open": (c_int, [POINTER(ConnectOptions), c_int, POINTER(c_void_p)]),
    "hr_client_close": (None, [c_void_p]),
    "hr_request": (c_int, [c_void_p, c_uint32, c_char_p, c_int, POINTER(c_void_p), POINTER(c_int)]),
    "hr_free": (None, [c_void_p]),
    "hr_session_open": (
        c_int,
        [c_void_p, c_char_p, c_char_p, c_uint64, c_uint64, c_int, POINTER(c_void_p)],
    ),
    "hr_session_close": (None, [c_void_p]),
    "hr_session_info": (POINTER(OpenAnswer), [c_void_p]),
    "hr_session_wait": (c_int, [c_void_p, c_int]),
    "hr_session_lease_all": (None, [c_void_p]),
    "hr_session_hold_ring": (c_void_p, [c_void_p]),
    "hr_ring_release": (None, [c_void_p]),
    "hr_ring_released_word": (c_void_p, [c_void_p, c_uint32]),
    "hr_session_seek": (c_int, [c_void_p, c_uint64, c_uint64, c_int]),
    "hr_session_get_stats": (None, [c_void_p, POINTER(SessionStats)]),
    "hr_set_python_functions": (None, [POINTER(PythonFunctions)]),
    "hr_shutdown": (None, []),
}

_lock = threading.Lock()
_library = None

# Counts the forks between the first process and this one: a handle made in another generation is the parent's.
generation = 0
# True once the interpreter ends: nothing is closed any more, the daemon sees the end of file.
ended = False


def _after_fork_in_child():
    global generation, _lock
    generation += 1
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)


def library_path():
    """Path of libheadrace.so: in the package's folder, or $HEADRACE_LIBRARY for development."""
    path = os.environ.get("HEADRACE_LIBRARY") or str(Path(__file__).with_name("libheadrace.so"))
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: install the headrace wheel, or set HEADRACE_LIBRARY")
    return path


def executable_path():
    """Path of the `headrace` executable, which a private daemon is started from, or None."""
    named = os.environ.get("HEADRACE_EXECUTABLE")
    if named:
        return named
    package = Path(__file__).parent
    folders = [package, package / "bin", Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        path = folder / "headrace"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return shutil.which("headrace")


def library():
    """The loaded library. CDLL: the interpreter's lock is released in every call."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load():
    loaded = ctypes.CDLL(library_path())
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    names = [name for name, _ in PythonFunctions._fields_]
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p).value for name in names]
    loaded.hr_set_python_functions(ctypes.byref(PythonFunctions(*addresses)))
    # PyDLL: with the interpreter's lock. They never wait, and so cost less than giving the lock back would.
    with_lock = ctypes.PyDLL(library_path())
    loaded.try_next_capsules, loaded.gpu_copy_start = with_lock.hr_session_try_next_capsules, with_lock.hr_gpu_copy_start
    loaded.try_next_capsules.restype = ctypes.py_object  # no argtypes: its one caller converts the arguments once, not per call
    loaded.gpu_copy_start.argtypes = [POINTER(GpuCopy)]
    atexit.register(_at_exit, loaded)
    return loaded


def _at_exit(loaded):
    global ended
    ended = True
    loaded.hr_shutdown()


def last_error():
    return library().hr_last_error().decode(errors="replace")


def check(code):
    """Raises the exception of a code that is not OK."""
    if code != errors.OK:
        raise errors.from_code(code, last_error())
