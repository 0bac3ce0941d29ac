"""Runs `headrace` for tests of its commands, and reads datasets without Headrace's code."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path


def executable():
    """$HEADRACE_EXECUTABLE, else `headrace` beside this Python, else on the PATH."""
    named = os.environ.get("HEADRACE_EXECUTABLE")
    beside = Path(sys.executable).with_name("headrace")
    found = named or (str(beside) if beside.exists() else shutil.which("headrace"))
    assert found, "no headrace executable: install the wheel or set HEADRACE_EXECUTABLE"
    return found


def headrace(*arguments, code=0, timeout=120, **options):
    """Runs a command that must end with `code`; returns (output, errors)."""
    command = [executable(), *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, timeout=timeout, **options)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert done.returncode == code, f"{command}: {done.returncode}\n{out}\n{err}"
    return out, err


def dataset_files(path):
    """{name: bytes} of everything in a dataset's folder."""
    return {entry.name: entry.read_bytes() for entry in Path(path).iterdir()}


def report(path):
    """{file: (verdict, reason)} of DST/report.csv; names as the file system has them."""
    with open(Path(path) / "report.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["file", "verdict", "reason"]
    return {name: (verdict, reason) for name, verdict, reason in rows[1:]}
