"""Runs the rivals of train_transform in turn; see README.md."""
import statistics
import subprocess
import venv

from bench import data, harness

MODULE = "bench.tasks.train_transform"
DALI = "nvidia-dali-cuda130==2.4.0"
WARM_UP, BATCHES, BATCH_SIZE = 12, 33, 128
NAMES = {"headrace": "Headrace", "headrace_avx2": "Headrace, --isa avx2", "torchvision": "PyTorch DataLoader + torchvision (PIL)", "dali": "DALI, CPU pipeline"}


def dali_python(options):
    """An environment of its own: DALI brings libraries that nothing else here needs."""
    folder = options.work / "dali-venv"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", DALI, "numpy"], check=True)
        (folder / "installed").write_text(DALI + "\n")
    return python


def check_pixels(options, list_file, dataset):
    """Raises unless Headrace's pixels are those of torchvision's transforms."""
    done = harness.run_json(options, f"{MODULE}.check_headrace", "--list", list_file, "--dataset", dataset)
    print(f"  {done['compared']} images compared with torchvision: largest difference {done['largest_difference']:.1e}")


def check_summaries(summaries):
    """Raises unless all rivals give the same kind of batch."""
    ours = summaries["headrace"]
    for name, other in summaries.items():
        if (other["shape"], other["dtype"]) != (ours["shape"], ours["dtype"]):
            raise RuntimeError(f"{name} gives {other['dtype']} {other['shape']}, Headrace {ours['dtype']} {ours['shape']}")
        for what in ("mean", "deviation"):
            distance = max(abs(a - b) for a, b in zip(other[what], ours[what]))
            if distance > 0.25:
                raise RuntimeError(f"{name}: {what} of a batch is {other[what]}, Headrace's {ours[what]}")


def measure(options, rivals, warm_up, batches, repeats):
    """{rival: [result of each run]}, runs alternating."""
    list_file, dataset, images = data.repeated(options, (warm_up + batches) * BATCH_SIZE)
    inputs = ["--list", list_file, "--dataset", dataset, "--warm-up", warm_up, "--batches", batches]
    inputs += ["--batch-size", BATCH_SIZE, "--threads", len(options.cores)]
    settings = {name: {} for name in rivals}
    if "dali" in rivals:
        settings["dali"] = {"python": dali_python(options)}
    if "headrace_avx2" in rivals:
        settings["headrace_avx2"] = {"variables": {"HEADRACE_ISA": "avx2"}}

    def run(name, *more):
        return harness.run_json(options, f"{MODULE}.with_{name.split('_')[0]}", *inputs, *more, **settings[name])

    check_pixels(options, list_file, dataset)
    if "dali" in rivals:  # draws and decodes by itself: pixels cannot be compared one by one
        check_summaries({name: run(name, "--summary") for name in rivals})
    runs = {name: [] for name in rivals}
    for _ in range(repeats):
        for name in rivals:
            runs[name].append(run(name))
    return runs


def rate(runs):
    return statistics.median(run["images_per_s"] for run in runs)


def has_avx512():
    return "avx512bw" in open("/proc/cpuinfo").read()


def run(options):
    rivals = ["headrace", *(["headrace_avx2"] if has_avx512() else []), "torchvision", "dali"]
    runs = measure(options, rivals, WARM_UP, BATCHES, options.repeats)
    rows = [harness.median_row(NAMES[name], "img/s", runs[name], "images_per_s") for name in runs]
    bars = [("headrace", "torchvision", 9), ("headrace", "dali", 6 if has_avx512() else 4.5)]
    bars += [("headrace_avx2", "dali", 4.5)] if has_avx512() else []
    for ours, name, bar in bars:
        ratio = rate(runs[ours]) / rate(runs[name])
        rows.append(harness.Row(f"{NAMES[ours]} / {NAMES[name]}", ratio, "×", bar=f"≥ {bar} ×", met=ratio >= bar))
    return rows


def compare(options):
    """The short comparison that ends the quickstart: fewer images, one run each."""
    runs = measure(options, ["headrace", "torchvision"], 6, 12, 1)
    return [harness.median_row(NAMES[name], "img/s", runs[name], "images_per_s") for name in runs]
