"""Headrace with a private daemon on the same cores."""
import headrace.torch as hr
import torch

from bench.measure import adopt_orphans, measure_batches, rival_arguments, train_transform

if __name__ == "__main__":
    arguments = rival_arguments()
    adopt_orphans()
    torch.set_num_threads(1)
    loader = hr.DataLoader(arguments.dataset, batch_size=arguments.batch_size, shuffle=True, seed=1, num_workers=arguments.threads,
                           transform=train_transform(hr))
    measure_batches((images for images, _ in loader), arguments)
