"""Memory of the daemon after each epoch."""
import argparse
import json

import headrace.torch as hr
import torch

from bench.measure import train_transform


def memory_bytes(pid):
    """RssAnon + RssShmem."""
    with open(f"/proc/{pid}/status") as f:
        values = dict(line.split(":", 1) for line in f)
    return sum(int(values[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--epochs", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    loader = hr.DataLoader(arguments.dataset, batch_size=128, shuffle=True, transform=train_transform(hr))
    memory = []
    for _ in range(arguments.epochs):
        for images, _ in loader:
            pass
        memory.append(memory_bytes(loader.stats()["daemon_pid"]))
    slots = (loader.prefetch_factor + 2) * 128 * 3 * 224 * 224 * 4
    print(json.dumps({"memory_bytes": memory, "slots_bytes": slots}))
