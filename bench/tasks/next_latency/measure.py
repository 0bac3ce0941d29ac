"""Times next() of a headrace.torch.DataLoader whose ring is full."""
import argparse
import json
import statistics
import time

import headrace.torch as hr
import torch

from bench.measure import train_transform


def in_memfd(address):
    """Whether an address of this process lies in the mapping of a memfd."""
    for line in open("/proc/self/maps"):
        first, last = (int(x, 16) for x in line.split(" ", 1)[0].split("-"))
        if first <= address < last:
            return "memfd:" in line
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--calls", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    times, copied = [], 0
    loader = hr.DataLoader(arguments.dataset, batch_size=16, shuffle=True, transform=train_transform(hr))
    batches = iter(loader)
    for call in range(20 + arguments.calls):
        time.sleep(0.04)
        start = time.perf_counter_ns()
        batch = next(batches)
        taken = time.perf_counter_ns() - start
        if call >= 20:
            times.append(taken / 1000)
            copied += not in_memfd(batch[0].data_ptr())
    times.sort()
    print(json.dumps({"median_us": statistics.median(times), "p99_us": times[len(times) * 99 // 100], "copied": copied}))
