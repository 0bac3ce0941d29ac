"""Captures a whole training step in a CUDA graph and replays it for an epoch: the host starts one graph a step, and nothing waits.

    headrace pack PHOTOS DATASET
    python examples/cuda_graph.py DATASET                 # batches are decoded where the daemon thinks best
    python examples/cuda_graph.py DATASET --engine gpu    # by the GPU itself

loader.static_batch() gives tensors at fixed addresses, which the captured step reads; loader.advance() brings the next batch into
them before each replay. At the end the labels that the graph saw are compared with those that the loader drew.
"""

import argparse
import sys
import time

import torch
from torch import nn

import headrace.torch as hr


def network(classes):
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    layers = [*block(3, 16), *block(16, 32), *block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes)]
    return nn.Sequential(*layers).cuda()


def capture(step):
    """The step as a graph. It runs a few times before, on a stream of its own, as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--engine", default="auto", choices=["auto", "cpu", "gpu"])
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    torch.manual_seed(0)
    loader = hr.DataLoader(
        arguments.dataset, arguments.batch_size, shuffle=True, drop_last=True, device="cuda", engine=arguments.engine,
        transform=[hr.RandomResizedCrop(224, scale=(0.5, 1.0)), hr.RandomHorizontalFlip(), hr.Normalize()])  # fmt: skip
    if len(loader) == 0:
        sys.exit(f"{arguments.dataset} has {len(loader.dataset)} samples: no batch of {arguments.batch_size}")
    model = network(max(1, len(loader.dataset.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = loader.static_batch()
    seen = torch.zeros(len(loader), arguments.batch_size, dtype=labels.dtype, device="cuda")
    number, loss = torch.zeros(1, dtype=torch.long, device="cuda"), torch.zeros((), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        out = nn.functional.cross_entropy(model(images), labels)
        out.backward()
        optimizer.step()
        loss.copy_(out.detach())
        seen.index_copy_(0, number % len(seen), labels.unsqueeze(0))
        number.add_(1)

    graph = capture(step)
    number.zero_()
    losses, began = [], time.perf_counter()
    for _ in range(len(loader)):
        loader.advance()
        graph.replay()
        losses.append(loss.clone())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began

    for step_number, row in enumerate(seen.tolist()):
        drawn = [sample["label"] for sample in loader.audit(step_number)]
        if row != drawn:
            sys.exit(f"step {step_number}: the graph saw the labels {row}, the loader drew {drawn}")
    print(f"{len(loader)} replays, engine {loader.stats()['engine']}: loss {losses[0].item():.3f} to {losses[-1].item():.3f}, "
          f"{len(loader) * arguments.batch_size / seconds:.0f} img/s; all labels as drawn")  # fmt: skip
    loader.close()


if __name__ == "__main__":
    main()
