#!/usr/bin/env python3
"""Runs the GPU benchmark: a table for people and bench/results/gpu.json. See README.md beside this; start with tools/bench_gpu.sh."""
import argparse
import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from bench import data, harness  # noqa: E402  (the repository's root is not installed)
from bench.gpu.feeds import FEEDS  # noqa: E402
from bench.run import table  # noqa: E402
from bench.tasks.train_transform.task import check_summaries  # noqa: E402

OURS = ("headrace", "headrace_gpu")
BARS = {("headrace", "resnet50"): (0.995, 3.5), ("headrace", "resnet18"): (0.985, 8),  # of synthetic; cores
        ("headrace_gpu", "resnet50"): (0.97, 1.5), ("headrace_gpu", "resnet18"): (0.93, 1.5)}
BATCHES_BARS = {"headrace": 30_000, "headrace_gpu": 240_000}  # images/s
# Of the GPU engine alone: what is taken, in which unit, how much of it, and the cores that may go into it.
GPU_BARS = {"staged": ("batches only, no shard pinned", "img/s", "images_per_s", 120_000, 2),
            "validation": ("Resize(256), CenterCrop(224)", "img/s", "images_per_s", 150_000, None),
            "large": ("12 megapixels, train crop", "Gpx/s", "gigapixels_per_s", 8, None)}
NAMES = {"synthetic": "synthetic", "headrace": 'Headrace, device="cuda"', "headrace_gpu": 'Headrace, engine="gpu"',
         "headrace_pinned": "Headrace, pin_memory=True", "dataloader": "PyTorch DataLoader + torchvision (PIL)", "dali": "DALI, mixed"}
IMAGES = 4000
LARGE_IMAGES = 32


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, default=data.default_photos(), help="folder of photos, one folder per class")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench", help="for what is made from them")
    parser.add_argument("--whats", nargs="*", default=["latency", "single", "none", *GPU_BARS, "resnet50", "resnet18"], help="what is measured")
    parser.add_argument("--feeds", nargs="*", default=[feed for feed in FEEDS if feed != "dali" or has_dali()], choices=FEEDS)
    parser.add_argument("--workers", type=int, help="Headrace's decode threads (num_workers); without it as many as cores")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rival-repeats", type=int, help="of feeds that are not ours, if fewer")
    parser.add_argument("--seconds", type=float, default=10, help="of each run, warm-up not counted")
    chosen = parser.parse_args()
    if chosen.photos is None:
        parser.error("no photos at hand: name a folder with --photos")
    return chosen


def has_dali():
    try:
        return importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:
        return False


class Runner:
    def __init__(self, chosen, list_file, dataset, large):
        self._chosen, self._large = chosen, large
        self._inputs = ["--list", list_file, "--dataset", dataset, "--seconds", chosen.seconds]
        self._inputs += ["--workers", chosen.workers] if chosen.workers else []
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def run(self, what, feed="headrace"):
        size = {"latency": 64, "single": 1, "large": 32}.get(what, 256)
        command = [sys.executable, "-m", "bench.gpu.measure", what, "--feed", feed, "--batch-size", size, *self._inputs]
        command += ["--dataset", self._large] if what == "large" else []
        done = subprocess.run(list(map(str, command)), env=self._environment, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{what} with {feed} failed ({done.returncode}):\n{done.stderr[-3000:]}")
        result = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"  {what} {feed}: {json.dumps(result)}", file=sys.stderr, flush=True)
        return result

    def alternating(self, what, feeds):
        """{feed: [result of each run]}"""
        runs = {feed: [] for feed in feeds}
        rival_repeats = self._chosen.rival_repeats or self._chosen.repeats
        for number in range(self._chosen.repeats):
            for feed in feeds:
                if number < rival_repeats or feed not in ("dataloader", "dali"):
                    runs[feed].append(self.run(what, feed))
        return runs


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def training_rows(model, runs):
    rows = []
    for feed, results in runs.items():
        row = harness.median_row(f"{model}: {NAMES[feed]}", "img/s", results, "images_per_s")
        rows.append(dataclasses.replace(row, what=f"{row.what}, {median(results, 'cores'):.2f} cores"))
    for feed in OURS:
        if "synthetic" not in runs or feed not in runs:
            continue
        share, cores = BARS.get((feed, model), (None, None))
        ratio = median(runs[feed], "images_per_s") / median(runs["synthetic"], "images_per_s")
        used = median(runs[feed], "cores")
        rows.append(harness.Row(f"{model}: {NAMES[feed]} / synthetic", 100 * ratio, "%", bar=f"≥ {100 * share:g} %" if share else "",
                                met=ratio >= share if share else None))
        rows.append(harness.Row(f"{model}: {NAMES[feed]}, next()", median(runs[feed], "next_median_us"), "µs"))
        rows.append(harness.Row(f"{model}: {NAMES[feed]}, cores in all", used, "cores", bar=f"≤ {cores:g}" if cores else "",
                                met=used <= cores if cores else None))
    return rows


def rows_of(what, runner, chosen):
    if what == "latency":
        rows = []
        for feed, runs in runner.alternating(what, [feed for feed in OURS if feed in chosen.feeds]).items():
            name = f"next(), {NAMES[feed]}, a batch ready"
            rows.append(harness.median_row(name, "µs", runs, "median_us", "≤ 40 µs", lambda us: us <= 40))
            rows.append(harness.median_row(f"{name}, 99th percentile", "µs", runs, "p99_us"))
        return rows
    if what == "none":
        runs = runner.alternating(what, [feed for feed in chosen.feeds if feed != "synthetic"])
        rows = []
        for feed, results in runs.items():
            least = BATCHES_BARS.get(feed)
            bar = (f"≥ {least:,}", lambda value, least=least: value >= least) if least else ()
            row = harness.median_row(f"batches only: {NAMES[feed]}", "img/s", results, "images_per_s", *bar)
            rows.append(dataclasses.replace(row, what=f"{row.what}, {median(results, 'cores'):.2f} cores"))
        return rows
    if what == "single":
        runs = [runner.run(what, "headrace_gpu") for _ in range(chosen.repeats)]
        return [harness.median_row("one image, from the seek on", "µs", runs, "median_us", "≤ 1000 µs", lambda us: us <= 1000)]
    if what in GPU_BARS:
        name, unit, key, least, most_cores = GPU_BARS[what]
        runs = [runner.run(what, "headrace_gpu") for _ in range(chosen.repeats)]
        cores = median(runs, "cores")
        met = median(runs, key) >= least and (most_cores is None or cores <= most_cores)
        bar = f"≥ {least:,}" + (f", ≤ {most_cores} cores" if most_cores else "")
        row = harness.median_row(f"{name}: {NAMES['headrace_gpu']}, {cores:.2f} cores", unit, runs, key, bar, lambda _: met)
        return [row]
    return training_rows(what, runner.alternating(what, chosen.feeds))


def main():
    from headrace import _library

    chosen = arguments()
    harness.HEADRACE = Path(_library.executable_path())
    options = harness.Options(photos=chosen.photos.resolve(), work=chosen.work.resolve(), repeats=chosen.repeats,
                              cores=tuple(sorted(os.sched_getaffinity(0))))
    options.work.mkdir(parents=True, exist_ok=True)
    list_file, dataset, _ = data.repeated(options, IMAGES)
    large = data.large(options, LARGE_IMAGES) if "large" in chosen.whats else None
    runner = Runner(chosen, list_file, dataset, large)
    for feed in OURS:
        if feed in chosen.feeds:
            runner.run("compare", feed)
    check_summaries({feed: runner.run("summary", feed) for feed in {"headrace", *chosen.feeds} - {"synthetic"}})
    rows = []
    for what in chosen.whats:
        rows += rows_of(what, runner, chosen)
        save(chosen, options, rows)
    table(rows)
    return 1 if any(row.met is False for row in rows) else 0


def save(chosen, options, rows):
    result = {"task": "gpu", **harness.description(options), "gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
              "photos": options.photos.name, "workers": chosen.workers, "seconds": chosen.seconds,
              "rows": [dataclasses.asdict(row) for row in rows]}
    result["commit"] = os.environ.get("HEADRACE_COMMIT", result["commit"])  # of a wheel that was made elsewhere
    folder = ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    (folder / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
