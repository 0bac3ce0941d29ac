"""What long commands show while they work: a bar on a terminal, now and then a line elsewhere."""

import fcntl
import os
import pty
import random
import re
import signal
import struct
import subprocess
import termios
import time

import pytest
from image_files import encode, make_image
from processes import wait_until

FILES = 6000


@pytest.fixture(scope="module")
def many_files(tmp_path_factory):
    """A folder that takes a good second to pack."""
    root = tmp_path_factory.mktemp("many")
    data = encode(make_image(random.Random(1), 40, 30), 0)[0]
    for i in range(FILES):
        if i % 1000 == 0:
            (root / f"class{i // 1000}").mkdir()
        (root / f"class{i // 1000}" / f"{i}.jpg").write_bytes(data)
    return root


def pack_with_pauses(executable, source, destination, pauses, error):
    """Stops the packer every now and then for so many seconds; `error`: where its error stream goes."""
    packer = subprocess.Popen([executable, "pack", source, destination], stdout=subprocess.PIPE, stderr=error)
    wait_until(lambda: packer.poll() is not None or any(destination.glob("*.lmdb*")), 20, "the first shard")
    for seconds in pauses:
        packer.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        assert packer.poll() is None
        packer.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    return packer


def test_on_a_terminal_a_bar_shows_part_rate_and_time_left(executable, many_files, tmp_path):
    ours, theirs = pty.openpty()
    columns = 100
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    packer = pack_with_pauses(executable, many_files, tmp_path / "dataset", [0.2] * 4, theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    out = packer.communicate(timeout=60)[0].decode()
    assert packer.returncode == 0
    lines = shown.decode().split("\r\x1b[K")
    bars = [re.fullmatch(r"packing \[(#*)(\.*)\] (\d+) %  ([\d,]+) of 6,000 files(.*)", line) for line in lines]
    bars = [bar for bar in bars if bar]
    assert bars and all(len(bar[1] + bar[2]) == 20 and len(bar[0]) < columns for bar in bars)
    assert any(re.search(r"  [\d,]+/s  [\d.]+ .?B/s  \d+ s left", bar[5]) for bar in bars)
    done = [int(bar[4].replace(",", "")) for bar in bars]
    assert done == sorted(done) and done[-1] > 0
    assert lines[-1] == ""  # the bar is gone at the end
    assert "6,000" in out


def test_elsewhere_a_line_comes_every_few_seconds(executable, many_files, tmp_path):
    packer = pack_with_pauses(executable, many_files, tmp_path / "dataset", [0.2, 0.2, 5.1], subprocess.PIPE)
    _, error = packer.communicate(timeout=60)
    assert packer.returncode == 0
    assert re.search(r"^packing \d+ %  [\d,]+ of 6,000 files", error.decode(), re.M)
    assert b"\r" not in error and b"\x1b" not in error
