"""What the runner gives every task: options, processes on fixed cores, and how results are kept."""
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADRACE = Path(sys.prefix) / "bin" / "headrace"


@dataclass(frozen=True)
class Options:
    photos: Path  # a folder per class
    work: Path  # prepared inputs, kept between runs
    cores: tuple  # everything measured runs on these
    repeats: int


@dataclass
class Row:
    """One line of the table. `met` is None where there is no bar."""
    what: str
    value: float
    unit: str
    cpu_s_per_1000: float = None
    bar: str = ""
    met: bool = None
    runs: list = field(default_factory=list)  # the single measurements that `value` is the median of


def pin(cores):
    return lambda: os.sched_setaffinity(0, cores)


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_json(options, module, *arguments, python=sys.executable, variables=None, timeout=900):
    """Runs `python -m module` in a process of its own on the cores, with further environment variables; returns the JSON on
    its last line."""
    command = [str(python), "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=options.work, env={**environment(), **(variables or {})}, preexec_fn=pin(options.cores), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def median_row(what, unit, runs, key, bar="", met=None):
    """A row with the median of `key` over the runs, and of their CPU cost where they have one."""
    values = [run[key] for run in runs]
    cpu = [run["cpu_s_per_1000"] for run in runs if "cpu_s_per_1000" in run]
    value = statistics.median(values)
    return Row(what, value, unit, statistics.median(cpu) if cpu else None, bar, met(value) if met else None, runs)


def git(*arguments):
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def description(options):
    """Where and on what a result was measured."""
    changed = git("status", "--porcelain", "--", "core", "client", "server", "packer", "cli", "python", "bench/tasks")
    versions = {}
    from importlib import metadata
    for name in ("headrace", "torch", "torchvision", "pillow", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return {
        "commit": git("rev-parse", "HEAD"), "uncommitted_changes": bool(changed),
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": processor(), "cores": list(options.cores), "kernel": platform.release(),
        "python": platform.python_version(), "versions": versions, "repeats": options.repeats,
        "load_before": os.getloadavg()[0],
    }


def fio(*arguments, cores=None):
    """Runs one fio job; its part of fio's JSON."""
    command = ["fio", "--name=job", "--output-format=json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin(cores) if cores else None)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
