"""Times opening a dataset that the running daemon has not seen."""
import argparse
import json
import time

import headrace.torch as hr

TRANSFORM = [hr.Resize((32, 32))]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--other", required=True, help="a dataset that starts the daemon")
    parser.add_argument("--dataset", required=True)
    arguments = parser.parse_args()
    other = hr.DataLoader(arguments.other, batch_size=1, transform=TRANSFORM)
    start = time.perf_counter()
    loader = hr.DataLoader(arguments.dataset, batch_size=128, shuffle=True, transform=TRANSFORM)
    samples = len(loader.dataset)
    opened = time.perf_counter() - start
    next(iter(loader))
    print(json.dumps({"samples": samples, "open_s": opened, "first_batch_s": time.perf_counter() - start}))
