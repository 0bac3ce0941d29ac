"""Times next() of a headrace.torch.DataLoader whose ring is full."""
import argparse
import json
import statistics
import time

import headrace.torch as hr
import torch

from bench.measure import train_transform

WARM_UP = 20


def in_memfd(address):
    """Whether an address of this process lies in the mapping of a memfd."""
    for line in open("/proc/self/maps"):
        first, last = (int(x, 16) for x in line.split(" ", 1)[0].split("-"))
        if first <= address < last:
            return "memfd:" in line
    return False


def work(seconds):
    """What a trainer does between two batches: it keeps a core busy."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--calls", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loader = hr.DataLoader(arguments.dataset, batch_size=16, shuffle=True, transform=train_transform(hr))
    batches = iter(loader)
    start = time.perf_counter()
    for _ in range(WARM_UP):
        next(batches)
    work_s = max(0.02, 3 * (time.perf_counter() - start) / WARM_UP)
    times, copied = [], 0
    for _ in range(arguments.calls):
        work(work_s)
        start = time.perf_counter_ns()
        batch = next(batches)
        times.append((time.perf_counter_ns() - start) / 1000)
        copied += not in_memfd(batch[0].data_ptr())
    times.sort()
    print(json.dumps({"median_us": statistics.median(times), "p99_us": times[len(times) * 99 // 100], "copied": copied,
                      "work_ms": 1000 * work_s}))
