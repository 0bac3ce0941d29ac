"""See README.md."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from bench import data, harness
from bench.measure import tree_cpu_seconds

WARM_UP_S, SECONDS = 5, 15


def trainers(options, dataset, socket, count, daemon):
    """Rates of `count` trainers on one daemon, and what they all cost."""
    start = time.monotonic() + 3 + count + WARM_UP_S  # time to start them all
    processes = [
        subprocess.Popen([sys.executable, "-m", "bench.tasks.eight_sessions.trainer", "--dataset", dataset, "--socket", socket,
                          "--seed", str(i), "--start", str(start), "--end", str(start + SECONDS)],
                         stdout=subprocess.PIPE, text=True, cwd=options.work, env=harness.environment(),
                         preexec_fn=harness.pin(options.cores))
        for i in range(count)]

    def cpu():
        return tree_cpu_seconds(daemon) + sum(tree_cpu_seconds(process.pid) for process in processes)

    time.sleep(start - time.monotonic())
    before = cpu()
    time.sleep(SECONDS - 0.2)  # before the first one ends
    used = (cpu() - before) * SECONDS / (SECONDS - 0.2)
    images = []
    for process in processes:
        output, _ = process.communicate(timeout=60)
        if process.returncode != 0:
            raise RuntimeError(f"a trainer failed with {process.returncode}")
        images.append(json.loads(output)["images"])
    rates = [n / SECONDS for n in images]
    return {"images_per_s": sum(rates), "rates": rates, "cpu_s_per_1000": used / sum(images) * 1000,
            "spread": (max(rates) - min(rates)) / statistics.mean(rates)}


def run(options):
    _, dataset, _ = data.repeated(options, 6000)
    one, eight = [], []
    with tempfile.TemporaryDirectory() as folder:
        socket = os.path.join(folder, "headrace.sock")
        daemon = subprocess.Popen([harness.HEADRACE, "serve", "--data", options.work, "--socket", socket, "--threads",
                                   str(len(options.cores))], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  preexec_fn=harness.pin(options.cores))
        try:
            for _ in range(max(1, options.repeats // 2)):
                one.append(trainers(options, dataset, socket, 1, daemon.pid))
                eight.append(trainers(options, dataset, socket, 8, daemon.pid))
        finally:
            daemon.terminate()
            daemon.wait(timeout=10)
    rows = [harness.median_row("one session", "img/s", one, "images_per_s"),
            harness.median_row("eight sessions together", "img/s", eight, "images_per_s")]
    ratio = rows[1].value / rows[0].value
    rows.append(harness.Row("eight / one", ratio, "×", bar="≥ 0.95 ×", met=ratio >= 0.95))
    rows.append(harness.median_row("largest minus smallest share", "of the mean", eight, "spread", "≤ 0.1",
                                   lambda value: value <= 0.1))
    return rows
