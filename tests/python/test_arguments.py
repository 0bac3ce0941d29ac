"""Arguments that cannot work are refused at once, by name; PyTorch's others are taken."""

import os
import pickle

import numpy
import pytest
import torch

import headrace
import headrace.torch as hr

SMALL = [hr.Resize((24, 20))]


@pytest.mark.parametrize(
    "transform, words",
    [
        (None, "transform|Resize|RandomResizedCrop"),
        ([hr.Resize(30)], "CenterCrop|RandomCrop|Resize"),
        ([hr.RandomHorizontalFlip()], "Resize|RandomResizedCrop"),
    ],
)
def test_shapes_that_would_differ_name_the_missing_transform(dataset, transform, words):
    with pytest.raises(hr.InvalidArgumentError, match=words):
        hr.DataLoader(dataset, 4, transform=transform)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"shuffle": "yes"}, "shuffle"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"dtype": torch.int32}, "dtype"),
        ({"dtype": torch.uint8, "transform": [*SMALL, hr.Normalize()]}, "uint8"),
        ({"memory_format": torch.preserve_format}, "memory_format"),
        ({"fields": ["image", "depth"]}, "depth"),
        ({"fields": []}, "fields"),
        ({"last_batch": "keep"}, "last_batch"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 1}, "rank"),
        ({"world_size": 0}, "rank|world_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"prefetch_factor": 0}, "prefetch_factor"),
        ({"prefetch_factor": 63}, "prefetch_factor"),
        ({"timeout": 0}, "timeout"),
        ({"on_bad_sample": "ignore"}, "on_bad_sample"),
        ({"max_bad": 3}, "max_bad"),
        ({"on_bad_sample": "skip", "max_bad": -1}, "max_bad"),
        ({"on_bad_sample": "skip", "max_bad": 10_001}, "max_bad"),
        ({"engine": "tpu"}, "engine"),
        ({"transform": [hr.Normalize(), hr.Resize((24, 20))]}, "Normalize"),
        ({"device": "foo"}, "device='foo'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_impossible_argument_is_named(dataset, arguments, words):
    with pytest.raises(ValueError, match=words):
        hr.DataLoader(dataset, **{"batch_size": 4, "transform": SMALL, **arguments})


@pytest.mark.parametrize("make", [lambda: hr.Normalize([float("nan")] * 3, [1] * 3), lambda: hr.Normalize(std=float("inf"))])
def test_numbers_that_are_none_are_named(make):
    with pytest.raises(ValueError, match="nan|inf"):
        make()


def test_numpys_numbers_and_paths_in_bytes_are_taken(dataset):
    loader = hr.DataLoader(os.fsencode(dataset), numpy.int64(4), numpy.bool_(True), transform=SMALL, seed=numpy.uint8(3))
    assert next(iter(loader))[0].shape[0] == 4


def test_a_loader_of_arrays_says_who_has_a_device(dataset):
    with pytest.raises(TypeError, match=r"Loader\(\).*headrace.torch.DataLoader"):
        headrace.Loader(dataset, 4, transform=SMALL, device="cuda")


def test_a_device_that_is_none_says_what_works(dataset):
    with pytest.raises(NotImplementedError, match="cpu"):
        hr.DataLoader(dataset, 4, transform=SMALL, device="meta")


def test_the_gpu_engine_is_for_batches_on_a_gpu(dataset):
    for make in (hr.DataLoader, headrace.Loader):
        with pytest.raises(hr.InvalidArgumentError, match='device="cuda"'):
            make(dataset, 4, transform=SMALL, engine="gpu")


@pytest.mark.parametrize("name", ["sampler", "batch_sampler", "collate_fn"])
def test_what_would_change_the_meaning_of_a_loop_is_refused(dataset, name):
    with pytest.raises(hr.InvalidArgumentError, match=name):
        hr.DataLoader(dataset, 4, transform=SMALL, **{name: object()})
    hr.DataLoader(dataset, 4, transform=SMALL, **{name: None})


def test_what_has_nothing_to_do_is_accepted(dataset):
    hr.DataLoader(dataset, 4, False, transform=SMALL, persistent_workers=True, multiprocessing_context="spawn",
                  worker_init_fn=print, generator=torch.Generator(), num_workers=4, prefetch_factor=None, in_order=True,
                  pin_memory_device="")  # fmt: skip
    with pytest.raises(TypeError, match="prefetch"):
        hr.DataLoader(dataset, 4, transform=SMALL, prefetch=3)


def test_the_signature_is_the_documented_one():
    import inspect

    shown = [
        name if p.default is p.empty else f"{name}={p.default}"
        for name, p in inspect.signature(hr.DataLoader).parameters.items()
        if p.kind != p.VAR_KEYWORD
    ]
    assert ", ".join(shown) == (
        "dataset, batch_size=1, shuffle=False, transform=None, drop_last=False, last_batch=None, seed=0, device=cpu, "
        "dtype=torch.float32, memory_format=torch.contiguous_format, fields=None, return_index=False, rank=None, "
        "world_size=None, num_workers=None, prefetch_factor=2, pin_memory=False, timeout=60, on_bad_sample=fail, "
        "max_bad=None, engine=auto, socket=None"
    )


def test_a_path_without_a_dataset_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing-here"):
        hr.DataLoader(tmp_path / "nothing-here", 4, transform=SMALL)
    with pytest.raises(hr.HeadraceError, match=str(tmp_path)):
        hr.DataLoader(tmp_path, 4, transform=SMALL)
    with pytest.raises(hr.InvalidArgumentError, match="headrace pack"):
        hr.DataLoader([1, 2, 3], 4, transform=SMALL)


def test_a_relative_path_is_relative_to_the_trainer(dataset, monkeypatch):
    import os

    monkeypatch.chdir(os.path.dirname(dataset))
    assert len(hr.DataLoader(os.path.basename(dataset), 4, transform=SMALL).dataset) == 131


def test_dtypes_are_taken_in_every_spelling(dataset):
    for dtype in (torch.float16, "float16", numpy.float16, numpy.dtype("float16")):
        assert next(iter(hr.DataLoader(dataset, 4, transform=SMALL, dtype=dtype)))[0].dtype == torch.float16


def test_a_loader_pickles_by_its_arguments(dataset):
    loader = hr.DataLoader(dataset, 4, True, transform=SMALL, seed=7, dtype=torch.float16, rank=1, world_size=2)
    copy = pickle.loads(pickle.dumps(loader))
    assert (copy.rank, copy.world_size, len(copy)) == (1, 2, len(loader))
    for (a, x), (b, y) in zip(loader, copy):
        assert torch.equal(a, b) and torch.equal(x, y)
