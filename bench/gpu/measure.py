"""One run in a process of its own; prints one line of JSON. What: a model to train, "none" (take batches only; "staged": from a
daemon that keeps no shards in memory for the GPU, "validation": with that transform, "large": with the pixels of the crops),
"latency" (time next()), "single" (one image, from the seek on), "summary" (describe the batches), "compare" (Headrace's with its
own on the CPU)."""
import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
import warnings

import torch
from headrace import _library

from bench.gpu import feeds
from bench.measure import adopt_orphans, tree_cpu_seconds

WARM_UP = 25


def trainer(name):
    """A function that takes one step with a batch."""
    if name in ("none", "staged", "validation", "large"):
        return lambda *batch: None
    import torchvision

    model = getattr(torchvision.models, name)().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(images, labels):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def rate(batches, step, seconds):
    for _ in range(WARM_UP):
        step(*next(batches))
    torch.cuda.synchronize()
    images, waits = 0, []
    cpu, start = tree_cpu_seconds(), time.perf_counter()
    while (entered := time.perf_counter()) - start < seconds:
        batch = next(batches)
        waits.append(time.perf_counter() - entered)
        step(*batch)
        images += len(batch[0])
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    cpu = tree_cpu_seconds() - cpu
    return {"images_per_s": images / took, "cores": cpu / took, "cpu_s_per_1000": cpu / images * 1000, "in_next": sum(waits) / took,
            "next_median_us": 1e6 * statistics.median(waits), "seconds": took, "images": images,
            "allocated_mb": torch.cuda.max_memory_allocated() >> 20,
            "reserved_mb": torch.cuda.max_memory_reserved() >> 20}


def latency(batches, calls=400, work_s=0.015):
    """`work_s` and the kernels behind each call: a trainer whose GPU is busy when it asks for the next batch."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    times = []
    for call in range(WARM_UP + calls):
        end = time.perf_counter() + work_s
        while time.perf_counter() < end:
            pass
        for _ in range(10):
            a @ a  # 14 ms: the host is ahead of the GPU, as in training
        start = time.perf_counter_ns()
        batch = next(batches)
        if call >= WARM_UP:
            times.append((time.perf_counter_ns() - start) / 1000)
        del batch
    times.sort()
    return {"median_us": statistics.median(times), "p99_us": times[len(times) * 99 // 100], "best_us": times[0]}


def single(loader, calls=300):
    """One image alone: from the position that is asked for until it is in GPU memory."""
    size, times = len(loader.dataset), []
    state = loader.state_dict()
    for call in range(WARM_UP + calls):
        state |= {"epoch": call % 3, "position": call * 7919 % size}
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        loader.load_state_dict(state)
        next(iter(loader))
        torch.cuda.synchronize()
        if call >= WARM_UP:
            times.append((time.perf_counter_ns() - start) / 1000)
    times.sort()
    return {"median_us": statistics.median(times), "p99_us": times[len(times) * 99 // 100], "best_us": times[0]}


def crop_pixels(loader):
    """Mean pixels of an image's crop."""
    crops = [sample["crop"] for step in range(min(len(loader), 8)) for sample in loader.audit(step)]
    return sum(height * width for _, _, height, width in crops) / len(crops)


@contextlib.contextmanager
def daemon(arguments):
    """One that reads what the GPU needs piece by piece; others are started by the loader."""
    if arguments.what != "staged":
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.socket = folder + "/socket"
        serving = subprocess.Popen([_library.executable_path(), "serve", "--data", arguments.dataset, "--socket", arguments.socket,
                                    "--page-cache-map", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            serving.kill()
            serving.wait()


def summary(batches):
    images, labels = next(batches)
    pixels = images.float()
    return {"shape": list(images.shape), "dtype": str(images.dtype).split(".")[-1],
            "mean": pixels.mean((0, 2, 3)).tolist(), "deviation": pixels.std((0, 2, 3)).tolist(),
            "channels_last": images.is_contiguous(memory_format=torch.channels_last), "device": str(labels.device)}


def compare(arguments, batches=20):
    mine, theirs = feeds.FEEDS[arguments.feed](arguments), feeds.endless(feeds.headrace_loader(arguments, "cpu"))
    for _ in range(batches):
        for a, b in zip(next(mine), next(theirs)):
            if not torch.equal(a.cpu(), b):
                raise SystemExit(f"{arguments.feed} and device=\"cpu\" differ")
    return {"compared": batches}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("--feed", choices=feeds.FEEDS, default="headrace")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, help="Headrace's decode threads; without it all")
    parser.add_argument("--dataset")
    parser.add_argument("--list")
    parser.add_argument("--socket")
    arguments = parser.parse_args()
    adopt_orphans()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    with daemon(arguments):
        print(json.dumps(measure(arguments)), flush=True)


def measure(arguments):
    if arguments.what == "compare":
        return compare(arguments)
    if arguments.what == "single":
        return single(feeds.headrace_gpu_loader(arguments))
    batches = feeds.FEEDS[arguments.feed](arguments)
    if arguments.what == "summary":
        return summary(batches)
    if arguments.what == "latency":
        return latency(batches)
    result = rate(batches, trainer(arguments.what), arguments.seconds)
    if arguments.what == "large":
        result["gigapixels_per_s"] = result["images_per_s"] * crop_pixels(feeds.headrace_gpu_loader(arguments)) / 1e9
    return result


if __name__ == "__main__":
    main()
