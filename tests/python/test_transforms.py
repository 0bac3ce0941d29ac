"""Transforms describe themselves as torchvision v2's do, and torchvision's own are taken where they mean the same."""

import inspect
import pickle

import pytest
import torch
import torchvision.transforms as v1
from torchvision.transforms import v2

import headrace.torch as hr
from headrace import InterpolationMode
from headrace.transforms import to_ours

OURS = [
    hr.RandomResizedCrop,
    hr.Resize,
    hr.CenterCrop,
    hr.RandomCrop,
    hr.RandomHorizontalFlip,
    hr.RandomVerticalFlip,
    hr.Normalize,
]
PAIRS = [  # ours, torchvision's
    (hr.RandomResizedCrop(224), v2.RandomResizedCrop(224)),
    (
        hr.RandomResizedCrop((96, 64), (0.2, 0.9), (0.5, 2.0), "bicubic"),
        v2.RandomResizedCrop((96, 64), (0.2, 0.9), (0.5, 2.0), v2.InterpolationMode.BICUBIC),
    ),
    (hr.Resize(256), v2.Resize(256)),
    (hr.Resize([30, 40], "nearest"), v2.Resize([30, 40], v2.InterpolationMode.NEAREST)),
    (hr.Resize(30, max_size=70), v2.Resize(30, max_size=70)),
    (hr.CenterCrop(224), v2.CenterCrop(224)),
    (hr.CenterCrop((20, 30)), v2.CenterCrop((20, 30))),
    (hr.RandomCrop(32, 4), v2.RandomCrop(32, 4)),
    (hr.RandomCrop((32, 40), 3, True, (1, 2, 3)), v2.RandomCrop((32, 40), 3, True, (1, 2, 3))),
    (hr.RandomHorizontalFlip(0.25), v2.RandomHorizontalFlip(0.25)),
    (hr.RandomVerticalFlip(), v2.RandomVerticalFlip()),
    (hr.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.1]), v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.1])),
]


@pytest.mark.parametrize("ours", OURS, ids=lambda cls: cls.__name__)
def test_arguments_have_torchvisions_names_and_order_and_defaults(ours):
    theirs = inspect.signature(getattr(v2, ours.__name__)).parameters
    mine = inspect.signature(ours).parameters
    assert list(mine) == list(theirs)
    for name, parameter in theirs.items():
        if ours is hr.Normalize and name in ("mean", "std"):
            assert tuple(mine[name].default) == {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}[name]
        else:
            assert mine[name].default == getattr(parameter.default, "value", parameter.default)


@pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda t: repr(t))
def test_a_transform_prints_as_torchvisions(ours, theirs):
    names = {f"InterpolationMode.{mode.name}": mode.value for mode in v2.InterpolationMode}
    expected = repr(theirs)
    for enum, name in names.items():  # torchvision prints what it was given, we the name
        expected = expected.replace(enum, name)
    assert repr(ours) == expected.replace("(1, 2, 3)", "[1, 2, 3]")


@pytest.mark.parametrize("ours, theirs", PAIRS, ids=lambda t: repr(t))
def test_torchvisions_transform_becomes_ours(ours, theirs):
    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)] if isinstance(ours, hr.Normalize) else []
    assert to_ours([*floats, theirs], "float32") == [ours]


@pytest.mark.parametrize("padding", [5, (1, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_padding_of_both_generations_of_torchvision_keeps_its_sides(module, padding):
    assert to_ours(module.RandomCrop(8, padding=padding), "float32") == [hr.RandomCrop(8, padding=padding)]


def test_normalize_of_torchvision_needs_the_floats_before_it():
    with pytest.raises(hr.InvalidArgumentError, match="ToDtype"):
        to_ours([v2.ToImage(), v2.Normalize([0.1] * 3, [0.2] * 3)], "float32")


@pytest.mark.parametrize("ours", [ours for ours, _ in PAIRS], ids=repr)
def test_a_transform_survives_pickling(ours):
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_interpolation_is_taken_as_string_enum_and_pillow_number():
    expected = hr.Resize(8, "lanczos")
    assert hr.Resize(8, v2.InterpolationMode.LANCZOS) == hr.Resize(8, 1) == hr.Resize(8, InterpolationMode.LANCZOS) == expected
    assert hr.Resize(8, v2.InterpolationMode.NEAREST_EXACT) == hr.Resize(8, "nearest")
    with pytest.raises(hr.InvalidArgumentError, match="cubical.*bicubic"):
        hr.Resize(8, "cubical")


def test_a_compose_of_the_imagenet_example_is_taken_whole():
    train = v1.Compose([v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.25] * 3)])
    expected = [hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize([0.5] * 3, [0.25] * 3)]
    assert to_ours(train, "float32") == expected
    nested = v2.Compose([v2.Compose([v2.Resize(256), v2.CenterCrop(224)]), v2.PILToTensor()])
    assert to_ours(nested, "uint8") == [hr.Resize(256), hr.CenterCrop(224)]


@pytest.mark.parametrize(
    "chain, dtype, words",
    [
        ([v2.ColorJitter()], "float32", "ColorJitter.*no exact equivalent"),
        ([v2.ToImage(), v2.Resize((8, 8))], "float32", "Resize behind a conversion"),
        ([v2.PILToTensor()], "float32", "make them agree"),
        ([v1.ToTensor()], "uint8", "make them agree"),
        ([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)], "float16", "no exact equivalent"),
        ([v2.ToImage(), v2.ToDtype(torch.float32)], "float32", "no exact equivalent"),
        ([v2.RandomCrop(8, padding=2, padding_mode="reflect")], "float32", "RandomCrop.*reflect"),
        ([v2.Resize(8, antialias=False)], "float32", "antialias"),
        ([lambda image: image], "float32", "neither"),
    ],
)
def test_what_has_no_exact_equivalent_is_refused_by_name(chain, dtype, words):
    with pytest.raises(hr.InvalidArgumentError, match=words):
        to_ours(chain, dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.RandomResizedCrop(0),
        lambda: hr.RandomResizedCrop((1, 2, 3)),
        lambda: hr.RandomResizedCrop(8, scale=(0.5, 0.1)),
        lambda: hr.Resize((8, 8), max_size=20),
        lambda: hr.Resize(8, max_size=8),
        lambda: hr.CenterCrop(8.5),
        lambda: hr.RandomCrop(8, padding=(1, 2, 3)),
        lambda: hr.RandomCrop(8, fill=300),
        lambda: hr.RandomHorizontalFlip(1.5),
        lambda: hr.Normalize(std=(0.1, 0.0, 0.1)),
        lambda: hr.Normalize(mean=(0.1, 0.2)),
    ],
)
def test_impossible_arguments_are_refused_at_once(make):
    with pytest.raises(ValueError):
        make()
