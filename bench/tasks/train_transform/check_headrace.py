"""Compares Headrace's batches with torchvision's transforms, crop by crop."""
import argparse
import csv
import json
import sys

import headrace.torch as hr
import numpy as np
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as F

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
TOLERANCE = 1e-6


def expected(path, audit):
    """The exact values: Pillow's pixels, normalised in double precision."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    image = F.resized_crop(image, *audit["crop"], [224, 224], interpolation=F.InterpolationMode.BILINEAR)
    pixels = np.asarray(image)
    if audit["flip"]:
        pixels = pixels[:, ::-1]
    return ((pixels / 255.0 - MEAN) / DEVIATION).transpose(2, 0, 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--batches", type=int, default=2)
    arguments = parser.parse_args()
    with open(arguments.list, newline="") as f:
        rows = list(csv.DictReader(f))
    compared, largest = 0, 0.0
    with hr.DataLoader(arguments.dataset, batch_size=128, shuffle=True, seed=1,
                       transform=[hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize()]) as loader:
        for step, (images, labels) in zip(range(arguments.batches), loader):
            for place, audit in enumerate(loader.audit(step)):
                if labels[place] != int(rows[audit["sample"]]["label"]):
                    sys.exit(f"step {step}, place {place}: label {labels[place]}, not {rows[audit['sample']]['label']}")
                difference = np.abs(images[place].numpy() - expected(audit["name"], audit)).max()
                if difference > TOLERANCE:
                    sys.exit(f"step {step}, place {place} ({audit}): differs by {difference}")
                compared, largest = compared + 1, max(largest, float(difference))
    print(json.dumps({"compared": compared, "largest_difference": largest}))
