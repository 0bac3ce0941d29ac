"""Makes a small ImageFolder of JPEGs whose classes a small network learns in a minute. The same files every time; offline.

    python examples/make_photos.py OUT [--classes 8] [--per-class 64] [--side 320]

A class is a hue and a shape (disc, square, stripes, rings); size, place, background, quality and chroma sampling vary.
"""

import argparse
import colorsys
import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SHAPES = ("disc", "square", "stripes", "rings")


def background(rng, width, height):
    """A soft random landscape: a few coarse noisy pixels, blown up."""
    coarse = Image.new("RGB", (max(2, width // 40), max(2, height // 40)))
    coarse.putdata([tuple(rng.randrange(40, 216) for _ in range(3)) for _ in range(coarse.width * coarse.height)])
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def draw_shape(rng, image, shape, colour):
    width, height = image.size
    radius = rng.uniform(0.25, 0.45) * min(width, height)
    x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    draw = ImageDraw.Draw(image)
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "disc":
        draw.ellipse(box, fill=colour)
    elif shape == "square":
        draw.rectangle(box, fill=colour)
    elif shape == "stripes":
        for i in range(5):
            top = y - radius + 2 * radius * i / 5
            draw.rectangle((x - radius, top, x + radius, top + radius / 5), fill=colour)
    else:
        for i in range(4):
            inset = radius * i / 4
            ring = (x - radius + inset, y - radius + inset, x + radius - inset, y + radius - inset)
            draw.ellipse(ring, outline=colour, width=max(1, round(radius / 8)))


def make_photo(rng, number, classes, side):
    """The image of one class, and how to save it."""
    width, height = (rng.randrange(side // 2, side * 3 // 2) for _ in range(2))
    image = background(rng, width, height)
    hue = number / classes + rng.uniform(-0.2, 0.2) / classes
    colour = colorsys.hsv_to_rgb(hue % 1.0, rng.uniform(0.7, 1.0), rng.uniform(0.6, 1.0))
    draw_shape(rng, image, SHAPES[number % len(SHAPES)], tuple(round(255 * c) for c in colour))
    image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, 1.5)))
    options = {"quality": rng.choice((75, 85, 90, 95)), "subsampling": rng.choice(("4:4:4", "4:2:2", "4:2:0"))}
    return image, options


def make_folder(out, classes=8, per_class=64, side=320, seed=0):
    """Writes out/<class>/<number>.jpg; returns how many files there are. Files that exist are written again."""
    for number in range(classes):
        folder = Path(out) / f"{number:02}_{SHAPES[number % len(SHAPES)]}"
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(per_class):
            rng = random.Random(f"{seed}/{number}/{i}")
            image, options = make_photo(rng, number, classes, side)
            image.save(folder / f"{i:04}.jpg", **options)
    return classes * per_class


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--per-class", type=int, default=64)
    parser.add_argument("--side", type=int, default=320, help="mean side in px; sizes vary by half of it")
    arguments = parser.parse_args()
    count = make_folder(arguments.out, arguments.classes, arguments.per_class, arguments.side)
    print(f"{count} images in {arguments.classes} classes: {arguments.out}")


if __name__ == "__main__":
    main()
