"""Folders of images that tests make themselves."""

import io
import random
from pathlib import Path

from PIL import Image, ImageDraw


def make_image(rng, width, height):
    """A picture with edges, gradients and noise, so that wrong pixels show."""
    noise = Image.frombytes("RGB", (width, height), rng.randbytes(3 * width * height))
    coarse = Image.frombytes("RGB", (4, 4), rng.randbytes(48)).resize((width, height), Image.Resampling.BICUBIC)
    image = Image.blend(coarse, noise, 0.15)
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        x, y = rng.randrange(width), rng.randrange(height)
        colour = tuple(rng.randrange(256) for _ in range(3))
        draw.ellipse((x, y, x + width // 3, y + height // 4), fill=colour)
    return image


def encode(image, number):
    """The image as a file of one of several kinds, and the file's suffix."""
    out, kind = io.BytesIO(), number % 10
    exif = Image.Exif()
    if kind == 8:
        exif[0x0112] = 1 + number // 10 % 8
    if kind == 9:
        format = ("PNG", "PNG", "WEBP", "GIF", "BMP", "TIFF")[number // 10 % 6]
        image.save(out, format)
        # ImageFolder, which some tests compare with, goes by the suffix and has none for GIF.
        return out.getvalue(), ".png" if format == "GIF" else f".{format.lower()}"
    if kind == 6:
        image = image.convert("L")
    options = {"quality": (75, 90, 96)[number % 3], "exif": exif}
    if kind not in (6,):
        options["subsampling"] = ("4:4:4", "4:2:0", "4:2:2")[number % 3]
    image.save(out, "JPEG", progressive=kind == 7, **options)
    return out.getvalue(), ".JPEG" if number % 2 else ".jpg"


def fill_folder(root, classes, per_class, smallest=40, largest=120, seed=1):
    """An ImageFolder of mixed kinds of files. Returns {name below root: bytes}."""
    files = {}
    rng = random.Random(seed)
    for number in range(classes * per_class):
        image = make_image(rng, rng.randint(smallest, largest), rng.randint(smallest, largest))
        data, suffix = encode(image, number)
        name = f"class{number % classes:02}/{number:05}{suffix}"
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files[name] = data
    return files
