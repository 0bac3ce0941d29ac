"""Samples that cannot be decoded, under each policy."""

import pickle
import random
import shutil

import pytest
import torch

import headrace.torch as hr

BAD = {3: "cut", 41: "garbage", 77: "cut"}  # sample number: what is done to its file
TRANSFORM = [hr.Resize((32, 32))]


@pytest.fixture(scope="module")
def damaged(image_folder, pack, executable, tmp_path_factory):
    """A packed dataset whose shard was damaged afterwards: the packer takes no unreadable image."""
    root = tmp_path_factory.mktemp("damaged")
    packed = root / "dataset"
    pack(image_folder, packed)
    (shard,) = packed.glob("*.lmdb")
    with hr.DataLoader(packed, 1, transform=TRANSFORM) as loader:
        images = {number: loader.dataset[number][0] for number in BAD}
        names = {number: loader.audit(number)[0]["name"] for number in BAD}
    data = bytearray(shard.read_bytes())
    rng = random.Random(1)
    for image in images.values():
        at = data.find(image)
        assert at >= 0 and data.find(image, at + 1) < 0
        data[at : at + len(image)] = rng.randbytes(len(image))
    copy = root / "copy"
    shutil.copytree(packed, copy)
    (copy / shard.name).write_bytes(data)
    return copy, names


def test_fail_names_the_sample_and_the_next_call_goes_on_behind_its_batch(damaged):
    path, names = damaged
    loader = hr.DataLoader(path, 10, transform=TRANSFORM, return_index=True)
    for _ in range(2):
        iterator, seen, errors = iter(loader), [], []
        while True:
            try:
                seen += next(iterator)[-1].tolist()
            except hr.BadSampleError as error:
                errors.append(error)
            except StopIteration:
                break
        assert [error.sample for error in errors] == list(BAD)
        assert seen == [i for i in range(131) if i // 10 not in {number // 10 for number in BAD}]
        for error in errors:
            assert error.name == names[error.sample] and error.shard == 0 and str(path) in str(error.dataset)
            assert error.reason and names[error.sample] in str(error) and str(error.sample) in str(error)
            assert pickle.loads(pickle.dumps(error)).sample == error.sample
    assert loader.stats()["bad_samples"] == 2 * len(BAD)


def test_skip_hands_out_shorter_batches(damaged):
    path, _ = damaged
    loader = hr.DataLoader(path, 10, transform=TRANSFORM, return_index=True, on_bad_sample="skip")
    batches = [(images.clone(), index.tolist()) for images, _, index in loader]
    assert [i for _, index in batches for i in index] == [i for i in range(131) if i not in BAD]
    assert [len(images) for images, _ in batches] == [9, 10, 10, 10, 9, 10, 10, 9, 10, 10, 10, 10, 10, 1]
    assert loader.stats()["bad_samples"] == 3


def test_skip_hands_out_an_empty_batch_rather_than_none(damaged):
    path, _ = damaged
    loader = hr.DataLoader(path, 1, transform=TRANSFORM, on_bad_sample="skip")
    lengths = [len(labels) for _, labels in loader]
    assert len(lengths) == 131 and [i for i, n in enumerate(lengths) if n == 0] == list(BAD)


def test_substitute_takes_another_sample_of_the_same_class_always_the_same(damaged, dataset):
    path, _ = damaged
    whole = [(images.clone(), labels) for images, labels in hr.DataLoader(dataset, 10, transform=TRANSFORM)]
    runs = []
    for _ in range(2):
        loader = hr.DataLoader(path, 10, transform=TRANSFORM, return_index=True, on_bad_sample="substitute")
        runs.append([(images.clone(), labels, index) for images, labels, index in loader])
        assert loader.stats()["bad_samples"] == 3
    for (images, labels, index), (again, *_, index_again), (expected, expected_labels) in zip(*runs, whole):
        assert torch.equal(images, again) and torch.equal(index, index_again)
        assert torch.equal(labels, expected_labels)  # the class stays
    flat = torch.cat([images for images, *_ in runs[0]])
    expected = torch.cat([images for images, _ in whole])
    differing = [i for i in range(131) if not torch.equal(flat[i], expected[i])]
    assert differing == list(BAD)


def test_a_damaged_name_matters_only_where_it_is_asked_for(damaged):
    path, _ = damaged
    copy = path.parent / "damaged-name"
    shutil.copytree(path, copy)
    (shard,) = copy.glob("*.lmdb")
    with hr.DataLoader(path, 1, transform=TRANSFORM) as loader:
        name = loader.audit(0)[0]["name"].encode()
    data = shard.read_bytes()
    assert data.count(name) == 1
    shard.write_bytes(data.replace(name, b"X" * len(name)))
    images, _ = next(iter(hr.DataLoader(copy, 2, transform=TRANSFORM)))
    assert len(images) == 2
    loader = hr.DataLoader(copy, 2, transform=TRANSFORM, fields=["image", "name"])
    with pytest.raises(hr.BadSampleError, match="sample 0"):
        next(iter(loader))
    with pytest.raises(hr.DataLossError, match="sample 0, field name"):
        loader.audit(0)
