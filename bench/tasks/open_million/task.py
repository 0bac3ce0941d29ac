"""See README.md."""
import random

from PIL import Image

from bench import data, harness


def million(options, count=1_000_000):
    folder = options.work / f"million-{count}"
    dataset = folder / "dataset"
    if not (dataset / "dataset.json").exists():
        (folder / "files").mkdir(parents=True, exist_ok=True)
        generator, files = random.Random(1), []
        for i in range(300):
            path = folder / "files" / f"{i:03d}.jpg"
            Image.frombytes("RGB", (32, 32), generator.randbytes(32 * 32 * 3)).save(path, quality=60)
            files.append(str(path))
        data.pack(data.write_list(folder / "list.csv", ((files[i % 300], i % 300) for i in range(count))), dataset, "--list")
    return dataset


def run(options):
    dataset = million(options)
    _, other, _ = data.repeated(options, 300)
    runs = [harness.run_json(options, "bench.tasks.open_million.measure", "--dataset", dataset, "--other", other)
            for _ in range(options.repeats)]
    if any(run["samples"] != 1_000_000 for run in runs):
        raise RuntimeError(f"not a million samples: {runs}")
    return [
        harness.median_row("a million samples: open", "s", runs, "open_s", "< 1 s", lambda value: value < 1),
        harness.median_row("the same, to the first batch of 128", "s", runs, "first_batch_s"),
    ]
