"""One trainer: counts the images that it got between two points in time."""
import argparse
import json
import time

import headrace

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--start", type=float, required=True, help="seconds of the monotonic clock")
    parser.add_argument("--end", type=float, required=True)
    arguments = parser.parse_args()
    loader = headrace.Loader(arguments.dataset, batch_size=64, shuffle=True, seed=arguments.seed, socket=arguments.socket,
                             drop_last=True, transform=[headrace.RandomResizedCrop(224), headrace.RandomHorizontalFlip(),
                                                        headrace.Normalize()])
    images, began = 0, time.monotonic()
    if began > arguments.start:
        raise SystemExit("started too late")
    now = began
    while now < arguments.end:
        for batch, _ in loader:
            now = time.monotonic()
            if now >= arguments.end:
                break
            if now >= arguments.start:
                images += len(batch)
    print(json.dumps({"images": images}))
