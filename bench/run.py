#!/usr/bin/env python3
"""Runs the benchmarks: one table for people, one JSON file per task in bench/results/.

    .venv/bin/python bench/run.py                      everything
    .venv/bin/python bench/run.py train_transform pack only these
    .venv/bin/python bench/run.py compare --photos DIR a short comparison with PyTorch's DataLoader; keeps no result

A task is a folder below bench/tasks with a README.md (the question and its bar) and a task.py.
"""
import argparse
import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import data, harness  # noqa: E402  (the repository's root is not installed)


def tasks():
    return sorted(path.parent.name for path in (harness.ROOT / "bench" / "tasks").glob("*/task.py"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"compare, {', '.join(tasks())}; default: all but compare")
    parser.add_argument("--photos", type=Path, default=data.default_photos(), help="folder of photos, one folder per class")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement; the median is kept")
    parser.add_argument("--cores", type=int, nargs="+", default=sorted(os.sched_getaffinity(0))[:2], metavar="CPU",
                        help="what everything measured runs on")
    parser.add_argument("--no-save", action="store_true", help="print only")
    chosen = parser.parse_args()
    unknown = set(chosen.tasks) - set(tasks()) - {"compare"}
    if unknown:
        parser.error(f"unknown task: {', '.join(sorted(unknown))}")
    if chosen.photos is None:
        parser.error("no photos at hand: name a folder with --photos")
    return chosen


def table(rows):
    def cells(row):
        cpu = "" if row.cpu_s_per_1000 is None else f"{row.cpu_s_per_1000:.2f}"
        met = {None: "", True: "met", False: "MISSED"}[row.met]
        value = f"{row.value:,.0f}" if abs(row.value) >= 100 else f"{row.value:.3g}"
        return [row.what, f"{value} {row.unit}", cpu, row.bar, met]

    lines = [["what", "median", "CPU s per 1,000", "bar", ""], *map(cells, rows)]
    if not any(line[3] for line in lines[1:]):
        lines = [line[:3] for line in lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        print("  ".join([line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])]).rstrip())


def save(task, options, rows):
    result = {"task": task, **harness.description(options), "photos": options.photos.name,
              "rows": [dataclasses.asdict(row) for row in rows]}
    folder = harness.ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{task}.json").write_text(json.dumps(result, indent=1) + "\n")


def main():
    chosen = arguments()
    options = harness.Options(photos=chosen.photos.resolve(), work=harness.ROOT / "build" / "bench",
                              cores=tuple(chosen.cores), repeats=chosen.repeats)
    options.work.mkdir(parents=True, exist_ok=True)
    if chosen.tasks == ["compare"]:
        from bench.tasks.train_transform import task
        table(task.compare(options))
        return 0
    if os.getloadavg()[0] > 0.5:
        print(f"note: the machine is not quiet (load {os.getloadavg()[0]:.1f}); rates will be too low", file=sys.stderr)
    everything = []
    for name in chosen.tasks or tasks():
        print(f"{name} …", file=sys.stderr, flush=True)
        rows = importlib.import_module(f"bench.tasks.{name}.task").run(options)
        everything += [dataclasses.replace(row, what=f"{name}: {row.what}") for row in rows]
        if not chosen.no_save:
            save(name, options, rows)
    table(everything)
    return 1 if any(row.met is False for row in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
