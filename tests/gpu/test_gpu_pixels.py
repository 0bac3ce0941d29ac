"""engine="gpu" on a real GPU against Pillow and torchvision themselves, from the packed files to the trainer's tensors."""

import shutil

import pytest
import torch
from loaders import session_of
from pillow_reference import batch, random_resized, resized_center, skip_without_its_pixels
from torchvision.transforms.v2 import InterpolationMode

import headrace.torch as hr

if not torch.cuda.is_available():
    pytest.skip("no GPU: torch.cuda.is_available() is False", allow_module_level=True)
skip_without_its_pixels()

FILTERS = ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
FORMATS = [torch.contiguous_format, torch.channels_last]
# What libjpeg smooths differs between its versions (docs/pixels.md), and Pillow refuses files without an end.
NOT_PILLOWS = shutil.ignore_patterns("progressive_incomplete*", "missing_eoi*")
FLIPS = [hr.RandomHorizontalFlip(), hr.RandomVerticalFlip()]


def make(dataset, transform, dtype, memory_format, normalize=False):
    transform = transform + [hr.Normalize()] * normalize
    return hr.DataLoader(dataset, 32, True, transform=transform, dtype=dtype, memory_format=memory_format, device="cuda", engine="gpu")


@pytest.fixture(scope="module")
def pictures(image_folder, data_folder, photos, pack, tmp_path_factory):
    """A folder and its dataset: the other tests' images, and where the test images are a third of the photographs and odd JPEGs."""
    root = tmp_path_factory.mktemp("pictures") / "root"
    shutil.copytree(image_folder, root)
    (root / "photos").mkdir()
    for path in photos[::3]:
        shutil.copy(path, root / "photos")
    for kind in ("colour", "exif", "markers", "quality", "restart", "sampling", "scans", "sizes"):
        if (data_folder / "odd" / kind).is_dir():
            shutil.copytree(data_folder / "odd" / kind, root / kind, ignore=NOT_PILLOWS)
    return root, pack(root, tmp_path_factory.mktemp("packed") / "pictures", "--check")


def compare(loader, reference, exact=lambda pixels: pixels):
    """Every batch of an epoch: `reference` makes the uint8 pixels of audit's rows, `exact` what they become."""
    for step, (images, _) in enumerate(loader):
        expected = exact(batch(loader.audit(step), reference))
        assert images.is_cuda and torch.equal(images.cpu(), expected), f"step {step}"
        assert images.is_contiguous(memory_format=loader._arguments["memory_format"])
    session = session_of(loader)
    assert session["engine"] == "gpu"
    assert 2 * session["samples_left_to_cpu"] < session["samples"]  # PNGs and the like; files of too few MCUs for entry points


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
@pytest.mark.parametrize("interpolation", FILTERS)
def test_crops_of_every_filter_are_pillows(pictures, interpolation, memory_format):
    root, dataset = pictures
    loader = make(dataset, [hr.RandomResizedCrop(96, interpolation=interpolation), *FLIPS], torch.uint8, memory_format)
    compare(loader, lambda row: random_resized(row, root, 96, InterpolationMode(interpolation)))


def test_the_evaluation_transform_is_pillows(pictures):
    root, dataset = pictures
    loader = make(dataset, [hr.Resize(72), hr.CenterCrop(64)], torch.uint8, torch.contiguous_format)
    compare(loader, lambda row: resized_center(row, root, 72, 64))


@pytest.mark.parametrize("memory_format", FORMATS, ids=str)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_floats_are_those_of_the_definition(pictures, dtype, normalize, memory_format):
    root, dataset = pictures
    mean, std = [torch.tensor(values, dtype=torch.float64).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]

    def exact(pixels):
        if not normalize:
            return (pixels.double() / 255).float().to(dtype)
        # One fused step with a and b rounded before: in float64 the product of two float32 is exact, and the sum is nearly so.
        return (pixels.double() * (1 / (255 * std)).float().double() + (-mean / std).float().double()).float().to(dtype)

    loader = make(dataset, [hr.RandomResizedCrop(96), *FLIPS], dtype, memory_format, normalize)
    compare(loader, lambda row: random_resized(row, root, 96), exact)
