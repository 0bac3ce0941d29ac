"""Trains a small network on a packed dataset for a fixed number of steps, on the CPU or a GPU.

    headrace pack PHOTOS DATASET
    python examples/train.py DATASET --steps 150 --expect-loss-falls
    python examples/train.py DATASET --device cuda                 # batches come in GPU memory
    torchrun --nproc-per-node 2 examples/train.py DATASET          # the same on two processes, one decode pool

Without a daemon on this node the loader starts a private one. A run that was interrupted goes on where it stopped with
--checkpoint FILE.
"""

import argparse
import os
import sys
import time

import torch
from torch import nn

import headrace.torch as hr


def small_network(classes):
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = [*block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)]
    return nn.Sequential(*layers)


def endless(loader):
    """Epoch after epoch; the loader's ring stays full across their ends."""
    while True:
        yield from loader


def train(arguments):
    distributed = int(os.environ.get("WORLD_SIZE", 1)) > 1
    if arguments.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if distributed:
        torch.distributed.init_process_group("nccl" if arguments.device == "cuda" else "gloo")
    torch.manual_seed(0)
    loader = hr.DataLoader(
        arguments.dataset,
        batch_size=arguments.batch_size,
        shuffle=True,
        transform=[hr.RandomResizedCrop(arguments.size, scale=(0.5, 1.0)), hr.RandomHorizontalFlip(), hr.Normalize()],
        drop_last=True,
        device=arguments.device,
    )
    if len(loader) == 0:
        sys.exit(f"{arguments.dataset} has {len(loader.dataset)} samples: no batch of {arguments.batch_size} on each rank")
    model = small_network(max(1, len(loader.dataset.classes))).to(arguments.device)
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    first = restore(arguments.checkpoint, loader, model, optimizer)

    losses, images_seen, began = [], 0, time.perf_counter()
    for step, (images, labels) in enumerate(endless(loader), first):
        if step >= arguments.steps:
            break
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        images_seen += len(labels) * loader.world_size
        if loader.rank == 0 and (step + 1) % 25 == 0:
            print(f"step {step + 1:5}  epoch {loader.epoch:3}  loss {losses[-1]:.3f}", flush=True)
        if arguments.checkpoint and loader.rank == 0 and (step + 1) % 50 == 0:
            save(arguments.checkpoint, step + 1, loader, model, optimizer)
    report(loader, losses, images_seen, time.perf_counter() - began)
    loader.close()
    if distributed:
        torch.distributed.destroy_process_group()
    return losses


def save(path, step, loader, model, optimizer):
    state = {
        "step": step,
        "loader": loader.state_dict(),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def restore(path, loader, model, optimizer):
    """The step to go on with."""
    if not path or not os.path.exists(path):
        return 0
    state = torch.load(path, map_location="cpu")
    loader.load_state_dict(state["loader"])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def ends(losses):
    """Mean loss of the first and of the last tenth of the steps."""
    tenth = max(1, len(losses) // 10)
    return sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth


def report(loader, losses, images_seen, seconds):
    if loader.rank != 0 or not losses:
        return
    start, end = ends(losses)
    stats = loader.stats()
    print(f"loss {start:.3f} at the start, {end:.3f} at the end of {len(losses)} steps")
    print(
        f"{images_seen / seconds:.0f} img/s on {loader.world_size} rank(s), "
        f"{stats['waited_seconds'] / seconds:.1%} of the time spent waiting for data"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="each rank takes the GPU of its number")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=32, help="on each rank")
    parser.add_argument("--size", type=int, default=64, help="side of the crops in px")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--checkpoint", help="file to go on from and to save to every 50 steps")
    parser.add_argument("--expect-loss-falls", action="store_true", help="exit with 1 unless the loss at least halves")
    arguments = parser.parse_args()
    losses = train(arguments)
    if arguments.expect_loss_falls:
        start, end = ends(losses)
        if not end < start / 2:
            sys.exit(f"the loss did not fall: {start:.3f} at the start, {end:.3f} at the end")


if __name__ == "__main__":
    main()
