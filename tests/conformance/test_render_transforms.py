"""Whole samples, from the file to the tensor, against Pillow and torchvision v2 (its PIL path) with the same draw: of both engines."""

import io
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from pillow_reference import skip_without_its_pixels
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

skip_without_its_pixels()

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = {"uint8": torch.uint8, "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
FLIPS = [{"name": "RandomHorizontalFlip"}, {"name": "RandomVerticalFlip"}]
TRAIN = [{"name": "RandomResizedCrop", "size": 224}, FLIPS[0]]
EVALUATION = [{"name": "Resize", "size": 256}, {"name": "CenterCrop", "size": 224}]


def picture(rng, width, height):
    """Gradients, edges and noise."""
    coarse = Image.frombytes("RGB", (5, 5), rng.randbytes(75)).resize((width, height), Image.Resampling.BICUBIC)
    noise = Image.frombytes("RGB", (width, height), rng.randbytes(3 * width * height))
    image = Image.blend(coarse, noise, 0.2)
    image.paste((255, 255, 255), (width // 3, height // 4, width // 2, height))
    return image


def encoded(rng, width, height, kind, orientation=1):
    image, out, exif = picture(rng, width, height), io.BytesIO(), Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    if kind == "png":
        image.save(out, "PNG", exif=exif)
    elif kind == "grey":
        image.convert("L").save(out, "JPEG", quality=90, exif=exif)
    elif kind == "progressive":
        image.save(out, "JPEG", quality=85, progressive=True, exif=exif)
    else:
        image.save(out, "JPEG", quality=90, subsampling=kind, exif=exif)
    return out.getvalue()


def kinds(rng):
    return rng.choice(("4:4:4", "4:2:0", "4:2:2", "grey", "progressive", "png"))


def reference(data, steps):
    """Height × width × 3 bytes: the steps that were drawn, by Pillow and torchvision."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    for step in steps:
        if step["step"] == "crop":
            top, left, height, width = step["rect"]
            padding = [max(0, -left), max(0, -top), max(0, left + width - image.width), max(0, top + height - image.height)]
            if any(padding):
                image = functional.pad(image, padding, fill=step["fill"])
            image = functional.crop(image, top + padding[1], left + padding[0], height, width)
        elif step["step"] == "resize":
            mode = InterpolationMode(step["interpolation"])
            image = functional.resize(image, step["size"], interpolation=mode)
        else:
            flip = functional.horizontal_flip if step["step"] == "hflip" else functional.vertical_flip
            image = flip(image)
    return np.asarray(image)


def nearest_float32(exact):
    """The float32 next to a fraction, whatever the last bit."""
    guess = np.float32(float(exact))
    around = (np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf)))
    return min(around, key=lambda value: (abs(Fraction(float(value)) - exact), int(value.view(np.uint32)) & 1))


def float32_table(mean, std):
    """256 × 3 values: fma(pixel, a, b) rounded once, with a and b rounded from double; without mean, pixel / 255."""
    if mean is None:
        return np.array([[nearest_float32(Fraction(pixel, 255))] * 3 for pixel in range(256)], np.float32)
    table = np.empty((256, 3), np.float32)
    for channel in range(3):
        a = Fraction(float(np.float32(1.0 / (255.0 * std[channel]))))
        b = Fraction(float(np.float32(-mean[channel] / std[channel])))
        for pixel in range(256):
            table[pixel, channel] = nearest_float32(pixel * a + b)
            exact = (Fraction(pixel, 255) - Fraction(mean[channel])) / Fraction(std[channel])
            assert abs(float(table[pixel, channel]) - exact) <= 1e-6
    return table


TABLES = {None: float32_table(None, None), "default": float32_table(MEAN, STD)}


def expected_tensor(pixels, dtype, normalized):
    if dtype == "uint8":
        return torch.from_numpy(pixels.copy())
    values = np.take_along_axis(TABLES["default" if normalized else None], pixels.reshape(-1, 3).astype(np.intp), axis=0)
    return torch.from_numpy(values.reshape(pixels.shape)).to(DTYPES[dtype])


def may_be_left_to_the_cpu(data, steps):
    """Whether docs/gpu_engine.md says so: no entry points, several resizes, a flip before one, a crop that reaches outside."""
    image = Image.open(io.BytesIO(data))
    if image.format != "JPEG" or "progressive" in image.info:
        return True
    width, height = ImageOps.exif_transpose(image).size
    resizes, flipped = 0, False
    for step in steps:
        if step["step"] == "crop":
            top, left, *size = step["rect"]
            if min(top, left) < 0 or top + size[0] > height or left + size[1] > width:
                return True
            height, width = size
        elif step["step"] == "resize":
            if flipped or resizes:
                return True
            resizes += step["size"] != [height, width]
            height, width = step["size"]
        else:
            flipped = True
    return False


@pytest.fixture
def check(engine, tmp_path):
    """check(file's bytes, transforms, …): renders one sample and compares every element. Returns the answer."""

    def run(data, transforms, key=(0, 0, 0), dtype="uint8", memory_format="contiguous", normalize=False):
        path = tmp_path / "file"
        path.write_bytes(data)
        transforms = transforms + ([{"name": "Normalize"}] if normalize else [])
        recipe = {"transform": transforms, "dtype": dtype, "memory_format": memory_format}
        answer, raw = engine.pixels(cmd="render", file=str(path), recipe=recipe, seed=key[0], epoch=key[1],
                                    position=key[2])  # fmt: skip
        assert answer["ok"], answer
        assert answer["engine"] == engine.name or may_be_left_to_the_cpu(data, answer["steps"]), answer
        shape = (answer["height"], answer["width"])
        got = torch.from_numpy(raw).view(DTYPES[dtype])
        got = got.view(3, *shape).permute(1, 2, 0) if memory_format == "contiguous" else got.view(*shape, 3)
        expected = expected_tensor(reference(data, answer["steps"]), dtype, normalize)
        assert torch.equal(got, expected), (recipe, key, answer)
        return answer

    return run


@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
@pytest.mark.parametrize(
    "dtype, normalize",
    [("uint8", False)] + [(dtype, normalize) for dtype in list(DTYPES)[1:] for normalize in (False, True)],
)
def test_every_output_of_the_training_transform(check, dtype, memory_format, normalize):
    rng = random.Random(f"{dtype} {memory_format} {normalize}")
    for position in range(12):
        size = rng.choice((224, 96, 7, 33, [64, 50], [1, 3], 160))
        transforms = [{"name": "RandomResizedCrop", "size": size}, *FLIPS]
        data = encoded(rng, rng.randint(20, 400), rng.randint(20, 400), kinds(rng))
        check(data, transforms, (1, 2, position), dtype, memory_format, normalize)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["4:2:0", "png"])
def test_every_orientation(check, kind, orientation):
    rng = random.Random(f"{kind} {orientation}")
    for position in range(6):
        data = encoded(rng, rng.randint(30, 300), rng.randint(30, 300), kind, orientation)
        check(data, [{"name": "RandomResizedCrop", "size": [80, 60]}, *FLIPS], (0, 0, position))
        check(data, [{"name": "Resize", "size": 64}, {"name": "RandomCrop", "size": [48, 56]}, *FLIPS], (0, 0, position))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
def test_every_interpolation(check, interpolation):
    rng = random.Random(interpolation)
    for position in range(15):
        data = encoded(rng, rng.randint(20, 500), rng.randint(20, 500), kinds(rng))
        key = (3, 1, position)
        check(data, [{"name": "RandomResizedCrop", "size": 100, "interpolation": interpolation}, *FLIPS], key)
        check(data, [{"name": "Resize", "size": 72, "interpolation": interpolation}, {"name": "CenterCrop", "size": 64}], key)
        check(data, [{"name": "Resize", "size": [90, 70], "interpolation": interpolation}, FLIPS[0]], key)


def test_padding_crops_as_for_small_images(check):
    rng = random.Random("cifar")
    outside = 0
    for position in range(60):
        data = encoded(rng, 32, 32, rng.choice(("png", "4:4:4", "4:2:0")))
        crop = {"name": "RandomCrop", "size": 32, "padding": 4, "fill": rng.choice((0, 9, [1, 128, 255]))}
        answer = check(data, [crop, FLIPS[0]], (7, 0, position), "float32", normalize=True)
        outside += answer["crop"] != [0, 0, 32, 32]
    assert outside > 40


def random_transform(rng):
    size = rng.choice((40, 64, [30, 50], 17))
    options = {"interpolation": rng.choice(("nearest", "bilinear", "bicubic", "lanczos"))}
    return rng.choice((
        {"name": "RandomResizedCrop", "size": size, **options},
        {"name": "Resize", "size": rng.choice((size, 33)), **options},
        {"name": "Resize", "size": rng.choice((20, 48)), "max_size": rng.choice((49, 70)), **options},
        {"name": "CenterCrop", "size": size},
        {"name": "RandomCrop", "size": size, "pad_if_needed": True, "fill": [5, 6, 7]},
        {"name": "RandomCrop", "size": size, "padding": [3, 0, 9, 60], "pad_if_needed": True},
        {"name": "RandomHorizontalFlip"},
        {"name": "RandomVerticalFlip"},
    ))  # fmt: skip


def test_transforms_in_any_order(check):
    rng = random.Random("chains")
    for position in range(300):
        chain = [random_transform(rng) for _ in range(rng.randint(1, 6))]
        chain.append(rng.choice(({"name": "CenterCrop", "size": [24, 31]}, {"name": "Resize", "size": [22, 35]})))
        data = encoded(rng, rng.randint(10, 200), rng.randint(10, 200), kinds(rng), rng.randint(1, 8))
        check(data, chain, (position, 4, 1000 + position))


def test_photographs(check, photos):
    for position, path in enumerate(photos):
        data = path.read_bytes()
        check(data, TRAIN, (0, 0, position), "float32", normalize=True)
        check(data, EVALUATION, (0, 0, position), "float16", "channels_last", normalize=True)


def test_an_image_that_is_too_small_for_its_crop_is_refused_by_name(render_tool, tmp_path):
    path = tmp_path / "small.png"
    Image.new("RGB", (10, 20)).save(path)
    recipe = {"transform": [{"name": "RandomCrop", "size": 32}]}
    answer = render_tool.ask(cmd="render", file=str(path), recipe=recipe, seed=0, epoch=0, position=0,
                             out=str(tmp_path / "out"))  # fmt: skip
    assert not answer["ok"]
    assert "RandomCrop of 32 x 32 px is larger than the image of 20 x 10 px" in answer["error"]
