"""See README.md."""
import io
import os
import random
import subprocess

from PIL import Image

from bench import data, harness

COUNT, DEPTHS = 4000, (32, 128, 256)


def padded_jpeg(size, generator):
    """A JPEG of about `size` bytes: 8 × 8 pixels and comments."""
    picture = io.BytesIO()
    Image.frombytes("RGB", (8, 8), generator.randbytes(192)).save(picture, "JPEG")
    picture = picture.getvalue()
    parts, left = [picture[:2]], size - len(picture)
    while left > 4:
        body = min(left - 4, 65533)
        parts.append(b"\xff\xfe" + (body + 2).to_bytes(2, "big") + generator.randbytes(body))
        left -= body + 4
    return b"".join([*parts, picture[2:]])


def cold_dataset(options):
    """(dataset, the files' sizes in the order of the samples)"""
    photo_sizes = [path.stat().st_size for path, _ in data.image_files(options.photos)]
    sizes = [photo_sizes[i % len(photo_sizes)] for i in range(COUNT)]
    folder = options.work / f"cold-{options.photos.name}"
    dataset = folder / "dataset"
    if not (dataset / "dataset.json").exists():
        generator, rows = random.Random(1), []
        (folder / "files").mkdir(parents=True, exist_ok=True)
        for i, size in enumerate(sizes):
            path = folder / "files" / f"{i:05d}.jpg"
            path.write_bytes(padded_jpeg(size, generator))
            rows.append((str(path), 0))
        data.pack(data.write_list(folder / "list.csv", rows), dataset, "--list")
    return dataset, sizes


def drop_from_cache(dataset):
    os.sync()
    for path in dataset.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        cached = int(subprocess.run(["fincore", "-b", "-n", "-o", "RES", path], capture_output=True, text=True,
                                    check=True).stdout)
        if cached > 0.01 * path.stat().st_size + 65536:
            raise RuntimeError(f"{path} stays in the page cache ({cached} bytes)")


def fio_rate(options, shard, sizes, depth):
    """Bytes/s of random reads of the same sizes: eight quantiles of them, as fio wants it."""
    ordered = sorted(sizes)
    blocks = [max(4096, round(ordered[(2 * i + 1) * len(ordered) // 16] / 4096) * 4096) for i in range(8)]
    split = ":".join(f"{block}/{share}" for block, share in zip(blocks, (13, 13, 13, 13, 12, 12, 12, 12)))
    job = harness.fio(f"--filename={shard}", "--readonly", "--rw=randread", f"--bssplit={split}", "--direct=1",
                      "--ioengine=libaio", f"--iodepth={depth}", "--runtime=5", "--time_based", cores=options.cores)
    return job["read"]["bw_bytes"]


def run(options):
    dataset, sizes = cold_dataset(options)
    shard = max(dataset.glob("*.lmdb"), key=lambda path: path.stat().st_size)
    ours, fio = [], {depth: [] for depth in DEPTHS}
    for _ in range(options.repeats):
        drop_from_cache(dataset)
        result = harness.run_json(options, "bench.tasks.cold_read.measure", "--dataset", dataset)
        read = sum(sizes[sample] for sample in result.pop("samples"))
        ours.append({**result, "mb_per_s": read / result["seconds"] / 1e6})
        for depth in DEPTHS:
            drop_from_cache(dataset)
            fio[depth].append({"mb_per_s": fio_rate(options, shard, sizes, depth) / 1e6})
    rows = [harness.median_row("Headrace, cold, random order", "MB/s", ours, "mb_per_s")]
    rows += [harness.median_row(f"fio randread, depth {depth}", "MB/s", fio[depth], "mb_per_s") for depth in DEPTHS]
    ratio = rows[0].value / max(row.value for row in rows[1:])
    rows.append(harness.Row("Headrace / the best of fio", ratio, "×", bar="≥ 0.8 ×", met=ratio >= 0.8))
    return rows
