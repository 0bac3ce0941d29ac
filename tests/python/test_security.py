"""docs/security.md: what other users cannot do; and that the tests which it and docs/faults.md name are there."""

import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from handover import Session, control, small_spec
from processes import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
OTHER = 54321


@pytest.fixture
def shared(dataset, start_daemon):
    """A daemon that another user may use as well."""
    return start_daemon(os.path.dirname(dataset), "--allow", f"uid:{OTHER}")


def as_other(code, *arguments):
    """Output of a Python program of another user; None where only root could start it."""
    if os.geteuid() != 0:
        return None
    program = ["python3", "-c", code, *map(str, arguments)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, user=OTHER, group=OTHER, extra_groups=[], cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def open_to_all(folder):
    """So that another user reaches the socket in a folder of pytest's."""
    for path in (folder, *folder.parents):
        if str(path).startswith("/tmp/"):
            os.chmod(path, 0o755)


def test_no_user_reaches_the_memory_of_anothers_session(shared, dataset, tmp_path):
    open_to_all(tmp_path)
    session = Session(shared.socket, small_spec(dataset))
    session.next()
    rings = [f"/proc/{shared.pid}/fd/{n}" for n in os.listdir(f"/proc/{shared.pid}/fd")]
    assert any("headrace-ring" in os.readlink(path) for path in rings)
    shutil.copy(REPOSITORY / "tests" / "support" / "handover.py", tmp_path)
    code = """
import os, struct, sys
sys.path.insert(0, sys.argv[1])
from handover import *
connection = control(sys.argv[2])
assert connection.request(STATS, {})["sessions"], "it may use the daemon"
connection.send(SEEK, struct.pack("<3Q", int(sys.argv[3]), 0, 0))
try:
    print(connection.read())
except Refused as refused:
    print(refused.code)
try:
    print(os.listdir("/proc/" + sys.argv[4] + "/fd"))
except PermissionError:
    print("denied")
for path in sys.argv[5:]:
    try:
        print(path, os.open(path, os.O_RDONLY))
    except OSError as error:
        assert error.errno in (2, 13), error
"""
    assert as_other(code, tmp_path, shared.socket, session.id, shared.pid, *rings) in (None, "5\ndenied\n")


def grpc(method):
    """A program that calls a method without arguments on the socket sys.argv[1], and waits for the end of the answer."""
    def header(name, value):
        return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    def frame(kind, flags, stream, body):
        return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body

    headers = b"".join(header(*pair) for pair in (
        (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"), ("te", "trailers"),
        ("content-type", "application/grpc")))  # fmt: skip
    call = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) + frame(0, 1, 1, bytes(5))
    return f"""
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(20)
connection.connect(sys.argv[1])
connection.sendall({call!r})
data = b""
while True:  # frames, up to the one that ends stream 1
    while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
        part = connection.recv(4096)
        if not part:
            sys.exit()
        data += part
    if data[3] == 1 and data[4] & 1:
        print("answered")
        break
    data = data[9 + int.from_bytes(data[:3], "big"):]
"""


def test_only_the_daemons_own_user_may_shut_it_down(shared, tmp_path):
    open_to_all(tmp_path)
    path = shared.socket + ".grpc"
    wait_until(lambda: os.path.exists(path), 20, path)
    shutdown = grpc("/headrace.v1.Headrace/Shutdown")
    assert as_other(shutdown, path) in (None, "answered\n")
    assert control(shared.socket).hello() == shared.pid
    subprocess.run([sys.executable, "-c", shutdown, path], check=True, timeout=60)
    assert shared.process.wait(20) == 0


@pytest.mark.parametrize("page", ["security.md", "faults.md"])
def test_the_page_names_tests_that_are_there(page):
    text = (REPOSITORY / "docs" / page).read_text()
    named = re.findall(r"`(tests/[\w/]+\.(?:cc|py))`(?::\s+((?:\w+(?:,\s+)?)+))?", text)
    assert len(named) > 30
    for path, names in named:
        source = (REPOSITORY / path).read_text()
        for name in filter(None, re.split(r",\s+", names)):
            assert re.search(rf"\b{name}\b", source), f"{path} has no {name}"
