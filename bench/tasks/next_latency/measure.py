"""Times next() of a headrace.torch.DataLoader whose ring is full."""
import argparse
import json
import statistics
import time

import headrace.torch as hr
import torch

from bench.measure import train_transform

WARM_UP, READY, WORK_S = 20, 16, 0.04


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


def timed(call):
    start = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - start) / 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--bursts", type=int, default=25)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loader = hr.DataLoader(arguments.dataset, batch_size=16, shuffle=True, transform=train_transform(hr), prefetch_factor=READY)
    batches = iter(loader)
    _, us = timed(lambda: [next(batches) for _ in range(WARM_UP)])
    fill_s = 2 * READY * us / 1e6 / WARM_UP
    at_once, after_work, torch_empty, copied, batch = [], [], [], 0, None
    for _ in range(arguments.bursts):
        time.sleep(fill_s)
        for _ in range(READY - 4):  # the deletion of the batch before is a part of the call
            start = time.perf_counter_ns()
            batch = next(batches)
            at_once.append((time.perf_counter_ns() - start) / 1000)
        for _ in range(4):
            work(WORK_S)
            start = time.perf_counter_ns()
            batch = next(batches)
            after_work.append((time.perf_counter_ns() - start) / 1000)
            copied += not in_memfd(batch[0].data_ptr())
            work(WORK_S)
            torch_empty.append(timed(lambda: torch.empty(1))[1])
    median = statistics.median
    print(json.dumps({
        "median_us": median(at_once), "p99_us": sorted(at_once)[len(at_once) * 99 // 100], "copied": copied,
        "after_work_us": median(after_work), "torch_empty_us": median(torch_empty)}))  # fmt: skip
