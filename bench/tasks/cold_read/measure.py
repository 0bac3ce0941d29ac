"""One epoch in random order over a cold dataset."""
import argparse
import json
import time

import headrace.torch as hr
import torch

from bench.measure import adopt_orphans, tree_cpu_seconds

WARM_UP = 3

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    arguments = parser.parse_args()
    adopt_orphans()
    loader = hr.DataLoader(arguments.dataset, batch_size=128, shuffle=True, dtype=torch.uint8,
                           transform=[hr.Resize((8, 8))], return_index=True)
    batches = iter(loader)
    for _ in range(WARM_UP):
        next(batches)
    samples, cpu, start = [], tree_cpu_seconds(), time.perf_counter()
    for _, _, index in batches:
        samples += index.tolist()
    seconds = time.perf_counter() - start
    print(json.dumps({"samples": samples, "seconds": seconds,
                      "cpu_s_per_1000": (tree_cpu_seconds() - cpu) / len(samples) * 1000}))
