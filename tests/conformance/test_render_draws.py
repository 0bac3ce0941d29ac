"""What is drawn for a sample, against torchvision's own make_params fed with the numbers of docs/order.md."""

import math
import random
import types

import pytest
import torch
from draw_reference import PLACE_DRAW, Numbers
from torchvision.transforms import v2
from torchvision.transforms.v2 import _geometry
from torchvision.transforms.v2.functional import _geometry as functional


class FakeTorch:
    """Stands in for `torch` inside torchvision's make_params: hands out our numbers, in double.

    `axes`: for which axes torchvision will ask for a place, 0 the top and 1 the left; it does not where it has no choice.
    """

    def __init__(self, numbers, place_draw, axes=(0, 1)):
        self._numbers, self._place_draw = numbers, place_draw
        self._units = (unit for attempt in range(10) for unit in numbers.units(attempt))
        self.axes = list(axes)

    def empty(self, _):
        return self

    def uniform_(self, low, high):
        value = low + next(self._units) * (high - low)
        return types.SimpleNamespace(item=lambda: value)

    def exp(self, value):
        result = math.exp(value.item())
        return types.SimpleNamespace(item=lambda: result)

    def randint(self, low, high, size):
        assert low == 0
        value = self._numbers.integers(self._place_draw, high - 1, high - 1)[self.axes.pop(0)]
        return Integer(value)


class Integer(int):
    def item(self):
        return int(self)


def draw(render_tool, transform, width, height, key, index=0):
    transforms = [{"name": "RandomHorizontalFlip"}] * index + [transform]
    seed, epoch, position = key
    answer = render_tool.ask(cmd="draw", recipe={"transform": transforms}, seed=seed, epoch=epoch, position=position,
                             width=width, height=height)  # fmt: skip
    assert answer["ok"], answer
    return answer


def random_key(rng):
    return rng.getrandbits(64), rng.getrandbits(rng.choice((4, 32))), rng.getrandbits(rng.choice((8, 30, 60)))


def random_image_size(rng):
    return max(1, round(2 ** rng.uniform(0, 11))), max(1, round(2 ** rng.uniform(0, 11)))


@pytest.mark.parametrize(
    "options",
    [{}, {"scale": [0.5, 0.9]}, {"ratio": [0.2, 0.3]}, {"ratio": [5, 9]}, {"scale": [0.9, 1.5], "ratio": [1, 1]}],
    ids=str,
)
def test_random_resized_crop_is_torchvisions(render_tool, monkeypatch, options):
    rng = random.Random(str(options))
    transform = v2.RandomResizedCrop(224, **options)
    transform._log_ratio = [math.log(r) for r in transform.ratio]
    fallbacks = 0
    for _ in range(400):
        width, height = random_image_size(rng)
        key, index = random_key(rng), rng.randrange(4)
        fake = FakeTorch(Numbers(*key, index), PLACE_DRAW)
        monkeypatch.setattr(_geometry, "torch", fake)
        expected = transform.make_params([torch.zeros((3, 1, 1)).expand(3, height, width)])
        monkeypatch.undo()
        fallbacks += len(fake.axes) == 2
        expected = [expected[edge] for edge in ("top", "left", "height", "width")]
        for axis, side in enumerate((height, width)):
            if expected[2 + axis] == 0:  # torchvision cannot resize that; ours is one pixel in the middle
                expected[axis], expected[2 + axis] = (side - 1) // 2, 1
        got = draw(render_tool, {"name": "RandomResizedCrop", "size": 224, **options}, width, height, key, index)
        assert got["crop"] == expected, (width, height, key, index)
    assert fallbacks > 0 or "ratio" not in options


@pytest.mark.parametrize("pad_if_needed", [False, True])
@pytest.mark.parametrize("padding", [None, 3, [4, 1], [1, 2, 3, 40]], ids=str)
def test_random_crop_is_torchvisions(render_tool, monkeypatch, padding, pad_if_needed):
    rng = random.Random(f"{padding} {pad_if_needed}")
    refused = 0
    for _ in range(200):
        width, height = random_image_size(rng)
        size = [rng.randint(1, 100), rng.randint(1, 100)]
        transform = v2.RandomCrop(size, padding=padding, pad_if_needed=pad_if_needed)
        left, right, top, bottom = transform.padding or (0, 0, 0, 0)
        padded = [height + top + bottom, width + left + right]
        axes = [axis for axis in (0, 1) if padded[axis] > size[axis] or (padded[axis] < size[axis] and pad_if_needed)]
        key, index = random_key(rng), rng.randrange(4)
        monkeypatch.setattr(_geometry, "torch", FakeTorch(Numbers(*key, index), 0, axes))
        options = {"size": size, "padding": padding, "pad_if_needed": pad_if_needed}
        got = draw(render_tool, {"name": "RandomCrop", **options}, width, height, key, index)
        try:
            expected = transform.make_params([torch.zeros((3, 1, 1)).expand(3, height, width)])
        except ValueError:
            assert "larger than the image" in got["draw_error"]
            refused += 1
            continue
        finally:
            monkeypatch.undo()
        pad_left, pad_top = expected["padding"][:2]
        # torchvision counts from the padded image, we from the image.
        assert got["crop"] == [expected["top"] - pad_top, expected["left"] - pad_left, *size], (width, height, key)
    assert (refused == 0) == pad_if_needed


@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
def test_flips_compare_a_unit_number_with_p(render_tool, name):
    rng = random.Random(name)
    done = 0
    for _ in range(300):
        key, index, p = random_key(rng), rng.randrange(4), rng.choice((0, 0.1, 0.5, 0.9, 1))
        got = draw(render_tool, {"name": name, "p": p}, 10, 10, key, index)
        expected = Numbers(*key, index).units(0)[0] < p
        assert got["flip" if name == "RandomHorizontalFlip" else "vflip"] == expected
        done += expected
    assert 90 < done < 210


def steps_of(render_tool, transform, width, height):
    return draw(render_tool, transform, width, height, (0, 0, 0))["steps"]


@pytest.mark.parametrize("max_size", [None, 300])
def test_resize_has_torchvisions_size(render_tool, max_size):
    rng = random.Random(max_size)
    for _ in range(400):
        width, height = random_image_size(rng)
        size = rng.choice((1, 7, 64, 224, 255))
        expected = functional._compute_resized_output_size((height, width), [size], max_size)
        more = {} if max_size is None else {"max_size": max_size}
        steps = steps_of(render_tool, {"name": "Resize", "size": size, **more}, width, height)
        got = steps[0]["size"] if steps else [height, width]
        assert got == [max(1, side) for side in expected], (width, height, size)


def test_center_crop_is_torchvisions(render_tool):
    rng = random.Random(5)
    for _ in range(400):
        width, height = rng.randint(1, 60), rng.randint(1, 60)
        crop = [rng.randint(1, 60), rng.randint(1, 60)]
        left, top, right, bottom = functional._center_crop_compute_padding(*crop, height, width)
        anchor = functional._center_crop_compute_crop_anchor(*crop, height + top + bottom, width + left + right)
        steps = steps_of(render_tool, {"name": "CenterCrop", "size": crop}, width, height)
        got = steps[0]["rect"] if steps else [0, 0, height, width]
        assert got == [anchor[0] - top, anchor[1] - left, *crop], (width, height, crop)
