"""Pictures for the corpus, and how they become files."""

import io

import numpy as np
from PIL import Image


def picture(generator, width, height, mode="RGB"):
    """Slopes, edges and noise, in any mode."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (3 + i) + y * 5) % 200 + 20 + (x // 7 + y // 5) % 2 * 60 for i in range(4)]
    noise = np.frombuffer(generator.randbytes(4 * width * height), np.uint8).reshape(height, width, 4) % 40
    pixels = np.clip(np.stack(planes, axis=-1) + noise - 40, 0, 255).astype(np.uint8)
    if mode in ("RGBA", "CMYK"):
        return Image.frombytes(mode, (width, height), pixels.tobytes())
    if mode == "LA":
        return Image.frombytes(mode, (width, height), pixels[..., :2].tobytes())
    if mode == "I;16":
        wide = pixels[..., 0].astype(np.uint16) * generator.choice([1, 7, 257])
        return Image.frombytes(mode, (width, height), wide.tobytes())
    image = Image.fromarray(pixels[..., :3].copy())
    if mode in ("I", "F"):
        return image.convert("L").convert(mode).point(lambda value: value * 3 - 90)
    if mode == "P":
        return image.quantize(generator.choice([2, 3, 16, 200, 256]))
    return image.convert(mode)


def size(generator):
    return generator.randint(1, 70), generator.randint(1, 70)


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block
