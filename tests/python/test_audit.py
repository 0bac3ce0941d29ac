"""Any batch can be repeated with Pillow and torchvision from what audit says, bit for bit."""

import io

import pytest
import torch
from PIL import Image
from pillow_reference import batch as reference_batch
from pillow_reference import random_resized, resized_center
from torchvision.transforms import v2

import headrace.torch as hr


def test_train_batches_equal_pillow_and_torchvision_bit_for_bit(dataset, image_folder):
    loader = hr.DataLoader(dataset, 25, True, seed=11, dtype=torch.uint8, return_index=True,
                           transform=[hr.RandomResizedCrop(48), hr.RandomHorizontalFlip(), hr.RandomVerticalFlip(0.3)])  # fmt: skip
    seen = {True: 0, False: 0}
    for _ in range(2):
        for step, (images, labels, index) in enumerate(loader):
            rows = loader.audit(step)
            assert [row["sample"] for row in rows] == index.tolist()
            assert [row["label"] for row in rows] == labels.tolist()
            assert torch.equal(images, reference_batch(rows, lambda row: random_resized(row, image_folder, 48)))
            for row in rows:
                seen[row["flip"]] += 1
    assert min(seen.values()) > 80  # of 262


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_every_interpolation_equals_pillows(dataset, image_folder, interpolation):
    loader = hr.DataLoader(dataset, 131, dtype=torch.uint8, transform=[hr.RandomResizedCrop(40, interpolation=interpolation)])
    ((images, _),) = loader
    mode = v2.InterpolationMode(interpolation)
    assert torch.equal(images, reference_batch(loader.audit(0), lambda row: random_resized(row, image_folder, 40, mode)))


def test_validation_batches_equal_pillow_and_torchvision_bit_for_bit(dataset, image_folder):
    loader = hr.DataLoader(dataset, 50, dtype=torch.uint8, transform=[hr.Resize(56), hr.CenterCrop(48)])
    for step, (images, _) in enumerate(loader):
        rows = loader.audit(step)
        assert torch.equal(images, reference_batch(rows, lambda row: resized_center(row, image_folder, 56, 48)))


def test_normalised_floats_are_within_a_millionth_of_the_exact_value(dataset, image_folder):
    loader = hr.DataLoader(dataset, 50, transform=[hr.Resize(56), hr.CenterCrop(48), hr.Normalize()])
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64).view(3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64).view(3, 1, 1)
    for step, (images, _) in enumerate(loader):
        pixels = reference_batch(loader.audit(step), lambda row: resized_center(row, image_folder, 56, 48))
        assert (images.double() - (pixels.double() / 255 - mean) / std).abs().max() < 1e-6


def test_audit_before_an_iteration_and_after_it_tells_the_same(dataset):
    loader = hr.DataLoader(dataset, 32, True, transform=[hr.RandomResizedCrop(16)], return_index=True)
    foretold = [loader.audit(step) for step in range(len(loader))]
    indices = [index.tolist() for *_, index in loader]
    assert [[row["sample"] for row in rows] for rows in foretold] == indices
    assert [loader.audit(step) for step in range(len(loader))] == foretold  # of the last iteration
    assert loader.audit(0, epoch=1) != foretold[0]
    assert loader.audit(0, epoch=0) == foretold[0]


def test_audit_counts_steps_as_enumerate_does_after_a_resume(dataset):
    whole = hr.DataLoader(dataset, 10, True, transform=[hr.RandomResizedCrop(16)])
    iterator = iter(whole)
    for _ in range(4):
        next(iterator)
    resumed = hr.DataLoader(dataset, 10, True, transform=[hr.RandomResizedCrop(16)], return_index=True)
    resumed.load_state_dict(whole.state_dict())
    for step, (*_, index) in enumerate(resumed):
        assert [row["sample"] for row in resumed.audit(step)] == index.tolist()
        assert resumed.audit(step) == whole.audit(step + 4)


def test_audit_of_a_rank_tells_its_own_part(dataset):
    for rank in range(3):
        loader = hr.DataLoader(dataset, 20, True, transform=[hr.RandomResizedCrop(16)], return_index=True, rank=rank, world_size=3)
        for step, (*_, index) in enumerate(loader):
            assert [row["sample"] for row in loader.audit(step)] == index.tolist()


def test_a_step_that_does_not_exist_is_an_index_error(dataset):
    loader = hr.DataLoader(dataset, 50, transform=[hr.Resize((8, 8))])
    assert len(loader.audit(2)) == 31
    with pytest.raises(IndexError, match="3 steps"):
        loader.audit(3)
    with pytest.raises(ValueError):
        loader.audit(-1)


def test_names_lead_to_the_files(dataset, image_folder):
    loader = hr.DataLoader(dataset, 131, transform=[hr.Resize((8, 8))])
    for row in loader.audit(0):
        packed = io.BytesIO(loader.dataset[row["sample"]][0])  # a progressive file has other bytes there
        assert Image.open(packed).tobytes() == Image.open(image_folder / row["name"]).tobytes()
        assert row["shard"] == 0
