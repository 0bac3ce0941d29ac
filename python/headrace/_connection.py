"""The control connections of this process: one per daemon, kept until it exits. Also which daemon serves a dataset."""

import ctypes
import json
import os
import socket as sockets
import threading
import time

from headrace import _job, _library, errors

_NODE_PATH = "/run/headrace/headrace.sock"
_PROBE_SECONDS = 5.0


class Connection:
    """A control connection. Requests of several threads take turns in the C library."""

    def __init__(self, socket, timeout, executable=None, grace_ms=0):
        self.socket = socket
        self.private = executable is not None
        self.generation = _library.generation
        library = _library.library()
        options = _library.ConnectOptions(
            socket=os.fsencode(socket),
            executable=None if executable is None else os.fsencode(executable),
            arguments=None,
            grace_ms=grace_ms,
        )
        self.handle = ctypes.c_void_p()
        _until(timeout, lambda ms: library.hr_client_open(options, ms, ctypes.byref(self.handle)))

    def request(self, message, body, timeout, with_descriptor=False):
        """JSON to JSON. With `with_descriptor` also the descriptor that came along (the caller closes it), or -1."""
        library = _library.library()
        answer, descriptor = ctypes.c_void_p(), ctypes.c_int(-1)
        text = json.dumps(body).encode()
        _until(
            timeout,
            lambda ms: library.hr_request(
                self.handle, message, text, ms, ctypes.byref(answer), ctypes.byref(descriptor) if with_descriptor else None
            ),
        )
        try:
            parsed = json.loads(ctypes.string_at(answer.value))
        finally:
            library.hr_free(answer)
        return (parsed, descriptor.value) if with_descriptor else parsed

    def device_memory(self, session, timeout):
        """The descriptor of a session's GPU memory, which the caller closes, and its bytes."""
        answer, descriptor = self.request(_library.DEVICE_MEMORY, {"session": session}, timeout, with_descriptor=True)
        return descriptor, answer["bytes"]


def _until(timeout, call):
    """Repeats a C call with the time that is left while signal handlers interrupt it. Raises what it failed with."""
    deadline = time.monotonic() + timeout
    while True:
        code = call(max(0, round((deadline - time.monotonic()) * 1000)))
        if code != errors.INTERRUPTED:
            return _library.check(code)


_connections = {}  # (socket, private): Connection
_lock = threading.RLock()


def _forget_parents():
    """In a forked child: the parent's connections are not ours, and its threads do not hold our lock."""
    global _lock
    _connections.clear()
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_parents)


class Link:
    """A dataset as one of the daemons serves it. In a forked child it is made anew."""

    def __init__(self, socket, dataset, timeout):
        self._arguments = (socket, dataset, timeout)
        self._generation = _library.generation
        self._connection, self.description = connect(*self._arguments)

    def connection(self):
        if self._generation != _library.generation:
            connection, description = connect(*self._arguments)
            before, now = self.description["hash"], description["hash"]
            if before != now:
                raise errors.DatasetChangedError(f"dataset {self._arguments[1]} changed: {before} → {now}")
            self._generation, self._connection = _library.generation, connection
        return self._connection

    def request(self, message, body, with_descriptor=False):
        return self.connection().request(message, body, self._arguments[2], with_descriptor)


def connect(socket, dataset, timeout):
    """The connection for a loader of this dataset, and DESCRIBE's answer. `socket`: a path, "@name", or None.

    None: $HEADRACE_SOCKET, else the node's daemon if it serves the dataset, else a private one.
    """
    socket = socket or os.environ.get("HEADRACE_SOCKET")
    with _lock:
        if socket:
            connection = _open(socket, timeout)
            return connection, describe(connection, dataset, timeout)
        return _node_daemon(dataset, timeout) or _private_daemon(dataset, timeout)


def describe(connection, dataset, timeout):
    return connection.request(_library.DESCRIBE, {"dataset": dataset}, timeout)


def _open(socket, timeout, executable=None, grace_ms=0):
    key = (socket, executable is not None)
    if key not in _connections:
        _connections[key] = Connection(socket, timeout, executable, grace_ms)
    return _connections[key]


def default_path():
    """Where a daemon listens unless it is told otherwise."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return os.path.join(folder, "headrace.sock") if folder else _NODE_PATH


def _node_daemon(dataset, timeout):
    path = default_path()
    if not _somebody_listens(path):
        return None
    try:
        connection = _open(path, min(timeout, _PROBE_SECONDS))
        return connection, describe(connection, dataset, timeout)
    except (errors.NotAllowedError, errors.DatasetNotFoundError, errors.DeadlineExceededError, errors.DaemonError):
        return None  # it is somebody else's, or does not serve this dataset


def _somebody_listens(path):
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM | sockets.SOCK_CLOEXEC) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
            return True
        except OSError:
            return False


def _private_daemon(dataset, timeout):
    executable = _library.executable_path()
    if executable is None:
        raise errors.DaemonError(
            "no daemon listens and the `headrace` executable was not found beside Python or in PATH: "
            "install the wheel, start `headrace serve`, or set HEADRACE_SOCKET"
        )
    name, grace_ms = _job.private_name()
    connection = _open(name, timeout, executable, grace_ms)
    return connection, describe(connection, dataset, timeout)
