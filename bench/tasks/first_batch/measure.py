"""Times a new private daemon's first batch."""
import argparse
import json
import time

import headrace.torch as hr

from bench.measure import train_transform

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    arguments = parser.parse_args()
    start = time.perf_counter()
    loader = hr.DataLoader(arguments.dataset, batch_size=128, shuffle=True, transform=train_transform(hr))
    made = time.perf_counter() - start
    images, labels = next(iter(loader))
    first = time.perf_counter() - start
    assert images.shape == (128, 3, 224, 224) and labels.shape == (128,)
    print(json.dumps({"made_s": made, "first_batch_s": first}))
