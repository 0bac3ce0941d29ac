"""What Pillow and torchvision make of the drawn parameters of `audit`: the reference for every batch."""

import PIL
import pytest
import torch
from PIL import Image, ImageOps
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional


def skip_without_its_pixels():
    """Skips a module where an older Pillow is installed, whose pixels are others: on a machine that only lends its GPU."""
    if int(PIL.__version__.split(".")[0]) < 13:
        pytest.skip(f"pixels are Pillow 13's; this is Pillow {PIL.__version__}", allow_module_level=True)


def open_image(root, name):
    """The image as torchvision's ImageFolder would give it to transforms, upright."""
    with Image.open(root / name) as image:
        return ImageOps.exif_transpose(image).convert("RGB")


def random_resized(row, root, size, interpolation=v2.InterpolationMode.BILINEAR):
    """uint8 C × H × W of RandomResizedCrop(size) and flips as drawn."""
    image = functional.resized_crop(open_image(root, row["name"]), *row["crop"], [size, size], interpolation)
    return functional.pil_to_tensor(flipped(image, row))


def flipped(image, row):
    image = functional.horizontal_flip(image) if row.get("flip") else image
    return functional.vertical_flip(image) if row.get("vflip") else image


def resized_center(row, root, resize, crop):
    image = functional.resize(open_image(root, row["name"]), [resize])
    return functional.pil_to_tensor(functional.center_crop(image, [crop, crop]))


def batch(rows, make):
    return torch.stack([make(row) for row in rows])
