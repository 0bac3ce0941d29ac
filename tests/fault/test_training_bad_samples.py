"""Samples that cannot be decoded, under each policy."""

import pickle
import shutil
import socket
import urllib.request

import pytest
import torch
from broken_images import break_images

import headrace.torch as hr

BAD = [3, 41, 77]
TRANSFORM = [hr.Resize((32, 32))]


@pytest.fixture(scope="module")
def damaged(image_folder, pack, executable, tmp_path_factory):
    """A packed dataset whose shard was damaged afterwards: the packer takes no unreadable image."""
    root = tmp_path_factory.mktemp("damaged")
    packed = root / "dataset"
    pack(image_folder, packed)
    with hr.DataLoader(packed, 1, transform=TRANSFORM) as loader:
        names = {number: loader.audit(number)[0]["name"] for number in BAD}
    copy = root / "copy"
    shutil.copytree(packed, copy)
    break_images(copy, BAD)
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
        assert [error.sample for error in errors] == BAD
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
    assert len(lengths) == 131 and [i for i, n in enumerate(lengths) if n == 0] == BAD


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
    assert differing == BAD


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


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_max_bad_is_a_limit_of_different_samples(damaged, policy):
    path, names = damaged
    arguments = {"transform": TRANSFORM, "return_index": True, "on_bad_sample": policy}
    loader = hr.DataLoader(path, 10, max_bad=3, **arguments)
    assert len(list(loader)) == len(list(loader)) == 14  # the same three in each epoch
    loader = hr.DataLoader(path, 10, max_bad=2, **arguments)
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(7):
            next(iterator)
        with pytest.raises(hr.BadSampleError, match="3 samples of this session are bad, max_bad is 2") as error:
            next(iterator)
        assert error.value.sample == 77 and names[77] in str(error.value)
        assert len(list(iterator)) == 6  # it goes on behind that batch


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_max_bad_counts_on_over_the_deaths_of_daemons(damaged, start_daemon, policy):
    path, _ = damaged
    daemon = start_daemon(path)
    loader = hr.DataLoader(
        path, 10, transform=TRANSFORM, on_bad_sample=policy, max_bad=2, socket=daemon.socket, prefetch_factor=1
    )
    for _ in range(2):
        iterator, failed = iter(loader), []
        for step in range(14):
            if step % 3 == 1:
                daemon.kill()
                daemon = start_daemon(path, socket=daemon.socket)
            try:
                next(iterator)
            except hr.BadSampleError as error:
                failed.append((step, error.sample))
        assert failed == [(7, 77)]
    assert loader.stats()["reconnections"] >= 8


@pytest.mark.parametrize("policy", ["fail", "skip", "substitute"])
def test_ranks_stay_in_step_where_one_of_them_meets_the_bad_sample(damaged, start_daemon, policy):
    path, _ = damaged
    daemon = start_daemon(path)
    loaders = [
        hr.DataLoader(path, 10, transform=TRANSFORM, rank=rank, world_size=2, return_index=True, on_bad_sample=policy,
                      last_batch="partial", socket=daemon.socket)
        for rank in range(2)
    ]  # fmt: skip
    assert len(loaders[0]) == len(loaders[1]) == 7
    lengths = ([], [])
    for rank, loader in enumerate(loaders):
        iterator = iter(loader)
        for _ in range(7):
            try:
                lengths[rank].append(len(next(iterator)[-1]))
            except hr.BadSampleError:
                lengths[rank].append("failed")
        assert next(iterator, None) is None
        state = loader.state_dict()
        assert (state["epoch"], state["position"]) == (1, 0)
    # Step 0: samples 0 … 9 and 10 … 19; step 2: 40 … and 50 …; step 3: 60 … and 70 ….
    hit = {"fail": "failed", "skip": 9, "substitute": 10}[policy]
    assert lengths == ([hit, 10, hit, 10, 10, 10, 6], [10, 10, 10, hit, 10, 10, 5])


def test_bad_samples_are_counted_by_loader_daemon_and_metrics(damaged, start_daemon):
    path, _ = damaged
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = start_daemon(path, "--metrics-port", str(port))
    loader = hr.DataLoader(path, 44, transform=TRANSFORM, on_bad_sample="skip", socket=daemon.socket, prefetch_factor=1)
    list(loader)
    assert loader.stats()["bad_samples"] == 3
    loader.close()  # the daemon was ahead; now it is not
    metrics = dict(
        line.rsplit(" ", 1)
        for line in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode().splitlines()
        if not line.startswith("#")
    )
    other = hr.DataLoader(path, 44, transform=TRANSFORM, on_bad_sample="skip", socket=daemon.socket)
    assert float(metrics["headrace_bad_samples_total"]) >= 3
    assert other._link.request(4, {})["bad_samples"] >= 3
