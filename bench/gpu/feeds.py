"""Who feeds the training loop: endless iterators over (images, labels) in GPU memory, bfloat16, channels_last."""
import csv
import os

import torch

from bench.measure import train_transform

LAYOUT = {"dtype": torch.bfloat16, "memory_format": torch.channels_last}
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def endless(loader):
    while True:
        yield from loader


def headrace_loader(arguments, device, **more):
    import headrace.torch as hr

    more = {"transform": train_transform(hr), **LAYOUT, **more}
    return hr.DataLoader(arguments.dataset, arguments.batch_size, True, seed=1, drop_last=True, device=device,
                         num_workers=arguments.workers, **more)


def headrace_gpu_loader(arguments):
    import headrace.torch as hr

    # Batches alone are taken faster than by any training: more slots, so that the daemon is never without one.
    more = {"prefetch_factor": 6} if arguments.what in ("none", "staged", "validation") else {}
    if arguments.what == "validation":
        more["transform"] = [hr.Resize(256), hr.CenterCrop(224), hr.Normalize()]
    return headrace_loader(arguments, "cuda", engine="gpu", socket=arguments.socket, **more)


def synthetic(arguments):
    images = torch.randn(arguments.batch_size, 3, 224, 224, device="cuda").to(**LAYOUT)
    labels = torch.zeros(arguments.batch_size, dtype=torch.long, device="cuda")
    while True:
        yield images, labels


def headrace(arguments):
    return endless(headrace_loader(arguments, "cuda", engine="cpu"))


def headrace_gpu(arguments):
    return endless(headrace_gpu_loader(arguments))


def headrace_pinned(arguments):
    for images, labels in endless(headrace_loader(arguments, "cpu", pin_memory=True)):
        yield images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)


class Photos(torch.utils.data.Dataset):
    def __init__(self, path):
        from torchvision.transforms import v2

        with open(path, newline="") as f:
            self.rows = [(row["path"], int(row["label"])) for row in csv.DictReader(f)]
        self.transform = v2.Compose([
            v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        from torchvision.datasets.folder import pil_loader

        path, label = self.rows[index]
        return self.transform(pil_loader(path)), label


def dataloader(arguments):
    loader = torch.utils.data.DataLoader(Photos(arguments.list), arguments.batch_size, shuffle=True, drop_last=True,
                                         pin_memory=True, num_workers=len(os.sched_getaffinity(0)), persistent_workers=True)
    for images, labels in endless(loader):
        yield images.to("cuda", non_blocking=True).to(**LAYOUT), labels.to("cuda", non_blocking=True)


def dali(arguments):
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    with open(arguments.list, newline="") as f:
        rows = list(csv.DictReader(f))

    @pipeline_def(batch_size=arguments.batch_size, num_threads=len(os.sched_getaffinity(0)), device_id=0, seed=1)
    def pipeline():
        encoded, label = fn.readers.file(files=[row["path"] for row in rows], labels=[int(row["label"]) for row in rows],
                                         random_shuffle=True, name="photos")
        image = fn.decoders.image_random_crop(encoded, device="mixed", output_type=types.RGB, random_area=[0.08, 1.0],
                                              random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
        image = fn.resize(image, device="gpu", size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
        image = fn.crop_mirror_normalize(image, device="gpu", dtype=types.FLOAT16, output_layout="HWC",
                                         mirror=fn.random.coin_flip(), mean=[255 * m for m in MEAN],
                                         std=[255 * s for s in DEVIATION])
        return image, label.gpu()

    for batch in DALIGenericIterator([pipeline()], ["images", "labels"], size=-1):
        yield batch[0]["images"].permute(0, 3, 1, 2).to(torch.bfloat16), batch[0]["labels"].squeeze(-1).long()


FEEDS = {feed.__name__: feed for feed in (synthetic, headrace, headrace_gpu, headrace_pinned, dataloader, dali)}
