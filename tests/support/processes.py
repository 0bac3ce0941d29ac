"""Daemons and Python programs of tests, as processes of their own."""

import contextlib
import fcntl
import os
import signal
import socket as socket_module
import subprocess
import sys
import time
from pathlib import Path


def wait_until(condition, seconds, what):
    """Waits for something that must come; how long it takes is not what is tested."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.01)


@contextlib.contextmanager
def openings_wait(path):
    """Whoever opens `path` waits, as on a disk that does not answer: the test holds a lease on it, and the kernel waits for
    45 s for its return. Yields a function: does somebody wait?"""
    handler = signal.signal(signal.SIGIO, signal.SIG_IGN)  # tells the holder that its lease is wanted
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield lambda: fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, handler)


class Daemon:
    """`headrace serve` as a process of the test."""

    def __init__(self, executable, root, socket, *arguments, **options):
        self.socket = str(socket)
        command = [executable, "serve", "--data", str(root), "--socket", self.socket, *arguments]
        self.log = open(self.socket + ".log", "ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                        **options)  # fmt: skip
        wait_until(lambda: self._listens() or self.process.poll() is not None, 20, "the daemon's socket")
        assert self.process.poll() is None, Path(self.socket + ".log").read_text()

    def _listens(self):
        """Its file is there a moment before it listens."""
        with socket_module.socket(socket_module.AF_UNIX) as probe:
            return probe.connect_ex(self.socket) == 0

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def end(self):
        if self.process.poll() is None:
            self.kill()
        self.log.close()


def _take_interrupts():
    """A shell starts what it puts into the background with SIGINT ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Script:
    """A Python program of the test's, running in a process of its own."""

    def __init__(self, path, arguments, environment, launcher=()):
        command = [sys.executable, *launcher, str(path), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env={**os.environ, **environment}, start_new_session=True, preexec_fn=_take_interrupts)  # fmt: skip

    @property
    def pid(self):
        return self.process.pid

    def line(self):
        """The next line of its output."""
        line = self.process.stdout.readline()
        assert line, f"the script ended: {self.process.communicate(timeout=60)[1]}"
        return line.rstrip("\n")

    def finish(self, timeout=180):
        """Waits for its end, which must be a success; returns the rest of its output."""
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, f"status {self.process.returncode}\n{out}\n{err}"
        return out

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
