"""The resize alone against Pillow's Image.resize, byte for byte."""

import random

import numpy as np
import pytest
from PIL import Image

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


def random_picture(rng, height, width):
    """Noise, or black and white blocks where filters overshoot most."""
    noise = np.frombuffer(rng.randbytes(3 * height * width), np.uint8).reshape(height, width, 3)
    return noise if rng.random() < 0.5 else np.where(noise < 128, 0, 255).astype(np.uint8)


def random_size(rng):
    """Mostly small, sometimes a line, seldom large; log-uniform, so that all scales come."""
    return max(1, round(2 ** rng.uniform(0, rng.choice((4, 8, 8, 9)))))


@pytest.fixture
def resize(render_tool, tmp_path):
    def run(picture, size, interpolation, window=None, mirrored=False):
        path = tmp_path / "raw"
        picture.tofile(path)
        more = {} if window is None else {"window": window}
        answer, pixels = render_tool.pixels(
            cmd="resize", file=str(path), **{"in": picture.shape[:2]}, size=size, interpolation=interpolation,
            mirrored=mirrored, **more)  # fmt: skip
        assert answer["ok"], answer
        height, width = size if window is None else window[2:]
        return pixels.reshape(height, width, 3)

    return run


def pillow(picture, size, interpolation):
    return np.asarray(Image.fromarray(picture).resize((size[1], size[0]), FILTERS[interpolation]))


@pytest.mark.parametrize("interpolation", FILTERS)
def test_random_sizes_equal_pillow(resize, interpolation):
    rng = random.Random(f"sizes {interpolation}")
    for _ in range(800):
        picture = random_picture(rng, random_size(rng), random_size(rng))
        size = [random_size(rng), random_size(rng)]
        if size == list(picture.shape[:2]):
            continue
        assert np.array_equal(resize(picture, size, interpolation), pillow(picture, size, interpolation)), (
            picture.shape, size)  # fmt: skip


@pytest.mark.parametrize("interpolation", FILTERS)
def test_crops_of_photographs_to_the_usual_sizes_equal_pillow(resize, interpolation):
    rng = random.Random(f"crops {interpolation}")
    for _ in range(60):
        picture = random_picture(rng, rng.randint(40, 500), rng.randint(40, 500))
        size = [rng.choice((160, 192, 224, 256))] * 2
        assert np.array_equal(resize(picture, size, interpolation), pillow(picture, size, interpolation)), (
            picture.shape, size)  # fmt: skip


@pytest.mark.parametrize("interpolation", FILTERS)
def test_one_axis_alone_equals_pillow(resize, interpolation):
    rng = random.Random(f"axis {interpolation}")
    for turn in range(120):
        picture = random_picture(rng, random_size(rng), random_size(rng))
        size = list(picture.shape[:2])
        size[turn % 2] = random_size(rng)
        if size == list(picture.shape[:2]):
            continue
        assert np.array_equal(resize(picture, size, interpolation), pillow(picture, size, interpolation)), (
            picture.shape, size)  # fmt: skip


@pytest.mark.parametrize("interpolation", FILTERS)
def test_very_large_reductions_equal_pillow(resize, interpolation):
    rng = random.Random(f"large {interpolation}")
    for size in ([1, 1], [3, 2], [7, 300], [300, 5]):
        picture = random_picture(rng, rng.randint(1500, 2500), rng.randint(1500, 2500))
        assert np.array_equal(resize(picture, size, interpolation), pillow(picture, size, interpolation)), (
            picture.shape, size)  # fmt: skip


@pytest.mark.parametrize("interpolation", FILTERS)
def test_a_window_equals_pillows_result_cut_to_it_and_mirrored(resize, interpolation):
    rng = random.Random(f"window {interpolation}")
    for _ in range(200):
        picture = random_picture(rng, random_size(rng), random_size(rng))
        size = [random_size(rng), random_size(rng)]
        if size == list(picture.shape[:2]):
            continue
        top, left = rng.randrange(size[0]), rng.randrange(size[1])
        window = [top, left, rng.randint(1, size[0] - top), rng.randint(1, size[1] - left)]
        mirrored = rng.random() < 0.5
        expected = pillow(picture, size, interpolation)[top : top + window[2], left : left + window[3]]
        if mirrored:
            expected = expected[:, ::-1]
        assert np.array_equal(resize(picture, size, interpolation, window, mirrored), expected), (
            picture.shape, size, window, mirrored)  # fmt: skip
