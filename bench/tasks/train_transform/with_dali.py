"""DALI's CPU pipeline: fused decode and crop, as its ImageNet examples do. Runs in an environment of its own."""
import csv

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from bench.measure import adopt_orphans, measure_batches, rival_arguments

MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pipeline_def
def train_transform(files, labels):
    encoded, label = fn.readers.file(files=files, labels=labels, random_shuffle=True, name="photos")
    image = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                          random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10)
    image = fn.resize(image, device="cpu", size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=True)
    image = fn.crop_mirror_normalize(image, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                     mean=[255 * m for m in MEAN], std=[255 * s for s in DEVIATION])
    return image, label


def batches(pipeline):
    while True:
        images, _ = pipeline.run()
        yield np.asarray(images.as_tensor())  # a view


if __name__ == "__main__":
    arguments = rival_arguments()
    adopt_orphans()
    with open(arguments.list, newline="") as f:
        rows = list(csv.DictReader(f))
    pipeline = train_transform(files=[row["path"] for row in rows], labels=[int(row["label"]) for row in rows],
                               batch_size=arguments.batch_size, num_threads=arguments.threads, device_id=None, seed=1)
    pipeline.build()
    measure_batches(batches(pipeline), arguments)
