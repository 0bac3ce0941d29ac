"""The transforms that the daemon applies: plain descriptions with torchvision v2's names, argument order and defaults.

None of them touches a pixel here. torchvision's own objects (v2, or the older ones) are taken too where they mean exactly
the same: see `to_spec`.
"""

import enum
import math
import numbers

from headrace.errors import InvalidArgumentError


class InterpolationMode(str, enum.Enum):
    """torchvision's names and values, for scripts without torchvision. Strings do as well: "bicubic"."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"

    def __str__(self):
        return self.value


_PILLOW_NUMBERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _interpolation(value):
    name = _PILLOW_NUMBERS.get(value) if isinstance(value, int) else getattr(value, "value", value)
    name = "nearest" if name == "nearest-exact" else name  # one thing on the PIL path
    try:
        return InterpolationMode(name)
    except ValueError:
        names = ", ".join(mode.value for mode in InterpolationMode)
        raise InvalidArgumentError(f"interpolation={value!r} is not one of {names}") from None


def _whole_numbers(value, name, lengths, minimum=1):
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) not in lengths or not all(isinstance(v, numbers.Integral) and v >= minimum for v in values):
        raise InvalidArgumentError(f"{name}={value!r}: expected {' or '.join(map(str, lengths))} whole numbers ≥ {minimum}")
    return [int(v) for v in values]


def _pair(size):
    """A size as torchvision's crops take it: n is n × n."""
    values = _whole_numbers(size, "size", (1, 2))
    return (values[0], values[-1])


def _range(value, name):
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name}={value!r}: expected two numbers") from None
    if not 0 < low <= high:
        raise InvalidArgumentError(f"{name}={value!r}: expected 0 < low ≤ high")
    return (low, high)


def _probability(p):
    if not 0.0 <= float(p) <= 1.0:
        raise InvalidArgumentError(f"p={p!r} is not in 0…1")
    return float(p)


def _antialias(value):
    if not value and value is not None:
        raise InvalidArgumentError("antialias=False: pixels are Pillow's, which always smooths when it makes smaller")


class Transform:
    """Base: compares, prints and pickles by its arguments."""

    def spec(self):
        """The transform as docs/protocol.md wants it."""
        raise NotImplementedError

    def _shown(self):
        return vars(self)

    def __repr__(self):
        arguments = ", ".join(f"{key}={value}" for key, value in self._shown().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self):
        return hash(repr(self))


class RandomResizedCrop(Transform):
    """A crop of random area and aspect ratio, resized to `size` (n: n × n)."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation="bilinear", antialias=True):
        self.size = _pair(size)
        self.scale = _range(scale, "scale")
        self.ratio = _range(ratio, "ratio")
        self.interpolation = _interpolation(interpolation)
        _antialias(antialias)

    def _shown(self):
        return {**vars(self), "antialias": True}

    def spec(self):
        return {
            "name": "RandomResizedCrop",
            "size": list(self.size),
            "scale": list(self.scale),
            "ratio": list(self.ratio),
            "interpolation": self.interpolation.value,
        }


class Resize(Transform):
    """Resizes: `size` n is the shorter side (then `max_size` bounds the longer one), (h, w) is both."""

    def __init__(self, size, interpolation="bilinear", max_size=None, antialias=True):
        if size is None:
            raise InvalidArgumentError("Resize(size=None) is not supported: give size, and max_size to bound the longer side")
        self.size = _whole_numbers(size, "size", (1, 2))
        self.interpolation = _interpolation(interpolation)
        self.max_size = None if max_size is None else _whole_numbers(max_size, "max_size", (1,))[0]
        if self.max_size is not None and (len(self.size) != 1 or self.max_size <= self.size[0]):
            raise InvalidArgumentError(f"max_size={max_size} needs one size smaller than itself, not size={size}")
        _antialias(antialias)

    def _shown(self):
        shown = {"size": self.size, "interpolation": self.interpolation}
        if self.max_size is not None:
            shown["max_size"] = self.max_size
        return {**shown, "antialias": True}

    def spec(self):
        size = self.size[0] if len(self.size) == 1 else self.size
        spec = {"name": "Resize", "size": size, "interpolation": self.interpolation.value}
        if self.max_size is not None:
            spec["max_size"] = self.max_size
        return spec


class CenterCrop(Transform):
    """The middle of the image, padded with zeros where it is smaller than `size`."""

    def __init__(self, size):
        self.size = _pair(size)

    def spec(self):
        return {"name": "CenterCrop", "size": list(self.size)}


class RandomCrop(Transform):
    """A random place of the image, padded first if asked. padding: n, (horizontal, vertical), or (left, top, right, bottom)."""

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        if padding_mode != "constant":
            raise InvalidArgumentError(f'padding_mode="{padding_mode}" is not supported, only "constant"')
        self.size = _pair(size)
        self.padding = None if padding is None else _padding(padding)
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = _fill(fill)
        self.padding_mode = "constant"

    def spec(self):
        spec = {"name": "RandomCrop", "size": list(self.size), "pad_if_needed": self.pad_if_needed, "fill": self.fill}
        if self.padding is not None:
            spec["padding"] = self.padding
        return spec


def _padding(padding):
    values = _whole_numbers(padding, "padding", (1, 2, 4), minimum=0)
    return (values * 4)[:4] if len(values) < 4 else values


def _fill(fill):
    if isinstance(fill, dict):
        raise InvalidArgumentError("fill as a dictionary is not supported: give one number, or one for each of r, g, b")
    if fill is None:
        return 0
    values = list(fill) if isinstance(fill, (list, tuple)) else [fill]
    if len(values) not in (1, 3) or not all(0 <= v <= 255 and v == int(v) for v in values):
        raise InvalidArgumentError(f"fill={fill!r}: expected one whole number in 0…255, or one for each of r, g, b")
    return int(values[0]) if len(values) == 1 else [int(v) for v in values]


class RandomHorizontalFlip(Transform):
    """Left and right change places with probability `p`."""

    def __init__(self, p=0.5):
        self.p = _probability(p)

    def spec(self):
        return {"name": type(self).__name__, "p": self.p}


class RandomVerticalFlip(RandomHorizontalFlip):
    """Top and bottom change places with probability `p`."""


class Normalize(Transform):
    """(pixel / 255 − mean) / std for each channel. The defaults are ImageNet's."""

    def __init__(self, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), inplace=False):
        self.mean = _three(mean, "mean")
        self.std = _three(std, "std")
        if any(value <= 0 for value in self.std):
            raise InvalidArgumentError(f"std={std!r}: expected numbers above 0")
        self.inplace = bool(inplace)

    def spec(self):
        return {"name": "Normalize", "mean": self.mean, "std": self.std}


def _three(value, name):
    values = [float(v) for v in value] if hasattr(value, "__iter__") else [float(value)]
    if len(values) not in (1, 3) or not all(math.isfinite(v) for v in values):
        raise InvalidArgumentError(f"{name}={value!r}: expected three numbers")
    return values * (3 // len(values))


_OURS = {
    cls.__name__: cls
    for cls in (
        RandomResizedCrop,
        Resize,
        CenterCrop,
        RandomCrop,
        RandomHorizontalFlip,
        RandomVerticalFlip,
        Normalize,
    )
}
_ARGUMENTS = {
    "RandomResizedCrop": ("size", "scale", "ratio", "interpolation", "antialias"),
    "Resize": ("size", "interpolation", "max_size", "antialias"),
    "CenterCrop": ("size",),
    "RandomCrop": ("size", "padding", "pad_if_needed", "fill", "padding_mode"),
    "RandomHorizontalFlip": ("p",),
    "RandomVerticalFlip": ("p",),
    "Normalize": ("mean", "std"),
}
_RESAMPLING = ("RandomResizedCrop", "Resize")  # on tensors torchvision resamples otherwise than Pillow


def as_list(transform):
    """What the user gave (one, a list, a Compose, or None) as a flat list of transforms."""
    if transform is None:
        return []
    if isinstance(transform, (list, tuple)):
        return [item for part in transform for item in as_list(part)]
    if type(transform).__name__ in ("Compose", "Sequential"):
        parts = getattr(transform, "transforms", None)
        return as_list(list(transform if parts is None else parts))
    return [transform]


def to_ours(transform, dtype):
    """The list of this module's transforms that means the same, for a loader of this dtype ("float32", …).

    torchvision's conversions (ToImage, PILToTensor, ToTensor, ToDtype(float32, scale=True)) are no steps here: the loader
    converts at the end. They are checked to change nothing: where they stand, and that their dtype is the loader's.
    """
    result, kind = [], None  # kind: what torchvision would have by now: None (PIL image), "uint8" or "float" tensor
    foreign = False
    for item in as_list(transform):
        name = type(item).__name__
        if isinstance(item, Transform):
            result.append(item)
            continue
        if not type(item).__module__.startswith("torchvision.transforms"):
            raise InvalidArgumentError(f"transform {item!r} is neither one of headrace's nor of torchvision's")
        foreign = True
        if name in _OURS:
            if kind is not None and name in _RESAMPLING:
                raise InvalidArgumentError(f"{name} behind a conversion to a tensor has other pixels: put it before")
            if kind == "uint8" and name == "Normalize":
                raise InvalidArgumentError("Normalize needs ToDtype(torch.float32, scale=True) before it")
            result.append(_translated(item, name))
        else:
            kind = _conversion(item, name, kind)
    if foreign and kind is not None and (kind == "uint8") != (dtype == "uint8"):
        raise InvalidArgumentError(f'the transforms end with {kind}, the loader has dtype "{dtype}": make them agree')
    return result


def _translated(item, name):
    arguments = {key: getattr(item, key) for key in _ARGUMENTS[name] if hasattr(item, key)}
    if arguments.get("padding") is not None and ".v2." in type(item).__module__:
        left, right, top, bottom = arguments["padding"]  # the order in which torchvision v2 keeps it
        arguments["padding"] = [left, top, right, bottom]
    try:
        return _OURS[name](**arguments)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"torchvision's {name}: {error}") from None


def _conversion(item, name, kind):
    """The kind of tensor behind a conversion, or an error if it would change anything else."""
    if name in ("ToImage", "PILToTensor"):
        return kind or "uint8"
    if name == "ToTensor":
        return "float"
    if name in ("ToDtype", "ConvertImageDtype", "ConvertDtype") and kind is not None:
        dtype, scale = str(item.dtype), getattr(item, "scale", True)
        if dtype == "torch.float32" and (scale or kind == "float"):
            return "float"
        if dtype == "torch.uint8" and kind == "uint8":
            return kind
    if name in ("ToPureTensor", "Identity"):
        return kind
    raise InvalidArgumentError(
        f"torchvision's {item!r} has no exact equivalent here; there are {', '.join(_OURS)} (leave the dtype to `dtype=`)"
    )
