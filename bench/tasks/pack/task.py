"""See README.md."""
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from bench import data, harness


def source_folder(options, count):
    """Class folders with `count` real files, copies of the photos."""
    files = data.image_files(options.photos)
    folder = options.work / f"pack-source-{options.photos.name}-{count}"
    if not (folder.parent / f"{folder.name}.done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for i in range(count):
            path, number = files[i % len(files)]
            target = folder / f"class_{number:04d}" / f"{i:06d}{path.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        (folder.parent / f"{folder.name}.done").touch()
    return folder


def warm(folder):
    """Reads every file, so that all are in the page cache; their total size."""
    return sum(len(path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def children_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def pack_once(options, source, target, count):
    shutil.rmtree(target, ignore_errors=True)
    cpu, start = children_cpu(), time.perf_counter()
    subprocess.run([harness.HEADRACE, "pack", "--threads", str(len(options.cores)), source, target], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=harness.pin(options.cores))
    seconds = time.perf_counter() - start
    cpu = children_cpu() - cpu
    shutil.rmtree(target)
    return {"files_per_s": count / seconds, "seconds": seconds, "cpu_s_per_1000": cpu / count * 1000}


def write_rate(options, total_bytes):
    """Bytes/s of one sequential writer, flushed at its end."""
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        job = harness.fio(f"--directory={folder}", "--rw=write", "--bs=1m", f"--size={total_bytes}", "--end_fsync=1")
    return job["write"]["bw_bytes"]


def run(options, count=6000):
    source = source_folder(options, count)
    total = warm(source)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        for place, folder, bar in (("memory", Path(memory), True), ("disk", options.work, False)):
            runs = [pack_once(options, source, folder / "packed", count) for _ in range(options.repeats)]
            row = harness.median_row(f"files of {total / count / 1000:.0f} kB, written to {place}", "files/s", runs,
                                     "files_per_s", "≥ 3,000 files/s" if bar else "",
                                     (lambda value: value >= 3000) if bar else None)
            rows.append(row)
    rows.append(harness.Row("what fio writes to that disk", write_rate(options, total) / (total / count), "files/s"))
    return rows
