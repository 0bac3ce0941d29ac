"""Times the steps inside epochs and across their ends."""
import argparse
import json
import statistics
import time

import headrace.torch as hr
import torch

from bench.measure import train_transform

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--epochs", type=int, default=21)
    parser.add_argument("--work", type=float, default=0.05, help="seconds of the trainer's own in each step")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loader = hr.DataLoader(arguments.dataset, batch_size=32, shuffle=True, drop_last=True, transform=train_transform(hr))
    inside, across, last = [], [], None
    for epoch in range(arguments.epochs):
        for step, _ in enumerate(loader):
            now = time.perf_counter()
            if last is not None:
                (inside if step else across).append(1000 * (now - last))
            last = now
            time.sleep(arguments.work)
    inside = inside[8:]  # the first epoch's start
    print(json.dumps({"inside_ms": statistics.median(inside), "across_ms": statistics.median(across),
                      "longest_across_ms": max(across), "longest_inside_ms": max(inside)}))
