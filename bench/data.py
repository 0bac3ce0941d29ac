"""The inputs of the benchmarks, made once and kept under build/bench."""
import csv
import hashlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

from bench import harness

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".pgm", ".tif", ".tiff"}


def default_photos():
    """Real photographs where they are at hand, otherwise none: the runner then asks for a folder."""
    for folder in (os.environ.get("HEADRACE_TEST_DATA"), harness.ROOT.parent / "shared" / "data"):
        if folder and (Path(folder) / "photos").is_dir():
            return Path(folder) / "photos"
    return None


def image_files(photos):
    """[(path, class number)] of an ImageFolder (or a flat folder: one class), sorted."""
    classes = sorted(entry for entry in Path(photos).iterdir() if entry.is_dir()) or [Path(photos)]
    return [(path, number) for number, folder in enumerate(classes) for path in sorted(folder.rglob("*"))
            if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]


def _key(*parts):
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def pack(source, dataset, *arguments):
    """Runs `headrace pack`; the finished dataset's folder."""
    shutil.rmtree(dataset, ignore_errors=True)
    command = [str(harness.HEADRACE), "pack", *map(str, arguments), str(source), str(dataset)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")
    return dataset


def write_list(path, rows):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["path", "label"])
        writer.writerows(rows)
    return path


def rejected(dataset):
    """Files that the packer reported as no readable image."""
    report = Path(dataset) / "report.csv"
    if not report.exists():
        return set()
    with open(report, newline="") as f:
        return {row["file"] for row in csv.DictReader(f)}


def repeated(options, count):
    """The photos, repeated in whole rounds to at least `count` images: (list file, packed dataset, number of images)."""
    files = image_files(options.photos)
    if not files:
        raise RuntimeError(f"{options.photos} holds no images")
    rounds = -(-count // len(files))
    rows = list(itertools.chain.from_iterable(itertools.repeat([(str(p), n) for p, n in files], rounds)))
    sizes = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path, _ in files]
    key = _key(rounds, sizes, (harness.HEADRACE.stat().st_mtime_ns,))
    folder = options.work / f"photos-{key}"
    list_file, dataset = folder / "list.csv", folder / "dataset"
    if not (folder / "list.csv").exists() or not (dataset / "dataset.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        everything = write_list(folder / "all.csv", rows)
        pack(everything, dataset, "--list")
        bad = rejected(dataset)
        write_list(list_file, [row for row in rows if row[0] not in bad])
    with open(list_file) as f:
        return list_file, dataset, sum(1 for _ in f) - 1


def large(options, count):
    """A dataset of `count` images of 12 megapixels, each made of the photos, tiled."""
    from PIL import Image

    folder = options.work / f"large-{_key(options.photos, count, harness.HEADRACE.stat().st_mtime_ns)}"
    dataset = folder / "dataset"
    if not (dataset / "dataset.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "images").mkdir(parents=True)
        files = itertools.cycle(path for path, _ in image_files(options.photos))
        for number in range(count):
            tiled = Image.new("RGB", (4000, 3000))
            for left, top in itertools.product(range(0, 4000, 500), range(0, 3000, 375)):
                with Image.open(next(files)) as photo:
                    tiled.paste(photo.convert("RGB").crop((0, 0, 500, 375)), (left, top))
            tiled.save(folder / "images" / f"{number}.jpg", quality=90)
        pack(folder / "images", dataset)
    return dataset
