"""engine="gpu" on a real GPU: what the GPU leaves to the decode threads, memory, damage, deaths. What batches in GPU memory have in
common with those of the CPU engine is in test_cuda_batches.py."""

import os
import pathlib
import random
import shutil
import time

import pytest
import torch
from image_files import make_image
from loaders import same, session_of
from processes import wait_until

import headrace.torch as hr

if not torch.cuda.is_available():
    pytest.skip("no GPU: torch.cuda.is_available() is False", allow_module_level=True)

TRAIN = [hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize()]


def make(dataset, batch_size=16, engine="gpu", **arguments):
    arguments = {"transform": TRAIN, "shuffle": True, "device": "cuda" if engine == "gpu" else "cpu", **arguments}
    return hr.DataLoader(dataset, batch_size, engine=engine, return_index=True, **arguments)


@pytest.fixture(scope="module")
def mixed(pack, tmp_path_factory):
    """Baseline and progressive JPEGs that keep their bytes, PNGs, grey and large ones: what the GPU makes and what it leaves."""
    root, numbers = tmp_path_factory.mktemp("mixed"), random.Random(3)
    for kind in ("baseline", "grey", "progressive", "png", "large"):
        (root / kind).mkdir()
    for i in range(12):
        image = make_image(numbers, 150 + 17 * i, 300 - 11 * i)
        image.save(root / "baseline" / f"{i}.jpg", quality=70 + i)
        image.convert("L").save(root / "grey" / f"{i}.jpg")
        image.save(root / "progressive" / f"{i}.jpg", progressive=True)
        image.save(root / "png" / f"{i}.png")
    for i in range(2):
        make_image(numbers, 3000, 2000).save(root / "large" / f"{i}.jpg", quality=90)
    return pack(root, tmp_path_factory.mktemp("packed") / "mixed", "--keep-bytes")


@pytest.mark.parametrize("batch_size", [1, 7, 50])
def test_what_the_gpu_cannot_make_joins_the_same_batch(mixed, batch_size):
    loader = make(mixed, batch_size)
    assert same(list(loader), list(make(mixed, batch_size, "cpu")))
    session = session_of(loader)
    assert session["engine"] == "gpu"
    assert session["samples_left_to_cpu"] >= 24  # progressive ones and PNGs; more have been begun for the next epoch


@pytest.mark.parametrize("transform", [
    [hr.Resize(256), hr.CenterCrop(224), hr.Normalize()],
    [hr.Resize((100, 64), "bicubic"), hr.RandomCrop(64), hr.RandomVerticalFlip()],
    [hr.RandomHorizontalFlip(), hr.Resize((65, 33), "nearest")],
    [hr.Resize(300), hr.RandomCrop(256), hr.Resize((64, 64), "lanczos")],
], ids=["validation", "bicubic", "flip first", "two resizes"])  # fmt: skip
def test_every_transform(dataset, transform):
    assert same(list(make(dataset, transform=transform)), list(make(dataset, 16, "cpu", transform=transform)))


def test_a_batch_that_does_not_fit_is_made_in_several_bursts(mixed, start_daemon):
    daemon = start_daemon(os.path.dirname(mixed), "--device-memory", "64MiB")
    arguments = dict(dtype=torch.uint8, transform=TRAIN[:2])
    loader = make(mixed, 50, socket=daemon.socket, **arguments)
    assert same(list(loader), list(make(mixed, 50, "cpu", **arguments)))
    stats = loader._link.request(4, {})
    assert 0 < stats["gpus"][0]["device_memory_used"] <= stats["device_memory_bytes"] == 64 << 20


@pytest.mark.parametrize("size", ["0", "1GiB"])
def test_shards_are_kept_in_memory_as_far_as_is_allowed_and_the_gpu_reads_them(mixed, start_daemon, size):
    daemon = start_daemon(os.path.dirname(mixed), "--page-cache-map", size)
    loader = make(mixed, 16, socket=daemon.socket)
    stats = lambda: loader._link.request(4, {})  # noqa: E731
    epochs = [list(loader)]
    if size != "0":
        shards = sum(path.stat().st_size for path in pathlib.Path(mixed).glob("*.lmdb"))
        wait_until(lambda: stats()["page_cache_map_used"] == shards, 60, "the shards in memory")
    read = stats()["bytes_read"]
    epochs += [list(loader) for _ in range(3)]
    if size == "0":
        assert stats()["page_cache_map_used"] == 0
    else:
        assert stats()["bytes_read"] - read < 3 * shards / 2  # that of files for the CPU
    on_cpu = make(mixed, 16, "cpu")
    assert all(same(epoch, list(on_cpu)) for epoch in epochs)


def test_a_shard_that_is_cut_while_the_gpu_reads_it(mixed, start_daemon, tmp_path):
    dataset = tmp_path / "cut"
    shutil.copytree(mixed, dataset)
    daemon = start_daemon(tmp_path)
    loader = make(dataset, 16, socket=daemon.socket, on_bad_sample="skip")
    stats = lambda: loader._link.request(4, {})  # noqa: E731
    list(loader)
    wait_until(lambda: stats()["page_cache_map_used"] > 0, 60, "the shards in memory")
    shard = dataset / "00000.lmdb"
    os.truncate(shard, shard.stat().st_size // 2)
    on_cpu = make(mixed, 1, "cpu", shuffle=False)
    on_cpu.set_epoch(loader.epoch)
    expected = {int(number): label for _, label, number in on_cpu}
    seen = [(int(number), label) for _, labels, numbers in loader for number, label in zip(numbers, labels)]
    assert len(seen) >= len(expected) // 3  # those that the GPU has, and those before the cut
    assert all(expected[number] == label.cpu() for number, label in seen)
    assert stats()["pid"] == daemon.process.pid and daemon.process.poll() is None


def test_more_memory_than_declared_is_refused_and_with_auto_the_cpu_takes_over(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset), "--device-memory", "64MiB", "--threads", "2")
    with pytest.raises(hr.ResourceExhaustedError, match="--device-memory"):
        next(iter(make(dataset, 128, socket=daemon.socket)))
    loader = make(dataset, 128, "auto", device="cuda", socket=daemon.socket)
    assert same(list(loader), list(make(dataset, 128, "cpu")))
    assert loader.stats()["engine"] == "cpu"


def test_auto_is_the_gpu_where_threads_are_few(dataset, start_daemon):
    for threads, engine in ((2, "gpu"), (4, "cpu")):
        daemon = start_daemon(os.path.dirname(dataset), "--threads", str(threads))
        loader = make(dataset, 16, "auto", device="cuda", socket=daemon.socket)
        assert same(list(loader), list(make(dataset, 16, "cpu")))
        assert loader.stats()["engine"] == engine


def auto_with_one_thread(dataset, start_daemon, **arguments):
    """A loader whose batches the CPU makes at first, too slowly for a loop that does nothing else."""
    daemon = start_daemon(os.path.dirname(dataset), "--threads", "4")
    loader = make(dataset, 16, "auto", device="cuda", num_workers=1, socket=daemon.socket, **arguments)
    next(iter(loader))
    assert loader.stats()["engine"] == "cpu"
    loader.set_epoch(0)
    return loader


def test_auto_becomes_the_gpu_while_it_runs_when_threads_do_not_keep_up(dataset, start_daemon):
    loader = auto_with_one_thread(dataset, start_daemon)
    epochs, deadline = [], time.monotonic() + 60
    while loader.stats()["engine"] == "cpu" and time.monotonic() < deadline:
        epochs.append(list(loader))
    before = len(epochs)
    epochs += [list(loader) for _ in range(3)]
    stats = loader.stats()
    assert stats["engine"] == session_of(loader)["engine"] == "gpu" and stats["reconnections"] == 0
    assert before > 1 and loader.state_dict()["epoch"] == len(epochs)
    on_cpu = make(dataset, 16, "cpu")
    assert all(same(epoch, list(on_cpu)) for epoch in epochs)


def test_a_static_batch_keeps_its_addresses_when_auto_becomes_the_gpu(dataset, start_daemon):
    loader = auto_with_one_thread(dataset, start_daemon, drop_last=True)
    static = loader.static_batch()
    addresses, copy = [tensor.data_ptr() for tensor in static], torch.empty_like(static[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        copy.copy_(static[0])
    got, more, deadline = [], 20, time.monotonic() + 60
    while more and time.monotonic() < deadline:
        more -= loader._session.on_gpu
        loader.advance()
        graph.replay()
        got.append((copy.clone(), static[1].clone(), static[2].clone()))  # without waiting: the loop is to be the faster one
    assert loader.stats()["engine"] == "gpu"
    assert addresses == [tensor.data_ptr() for tensor in loader.static_batch()]
    on_cpu = make(dataset, 16, "cpu", drop_last=True)
    expected = []
    while len(expected) < len(got):
        expected += list(on_cpu)
    assert same(got, expected[: len(got)])


def test_memory_comes_back_when_loaders_end(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset))
    first = make(dataset, 32, socket=daemon.socket)
    list(first)
    used = lambda: first._link.request(4, {})["gpus"][0]["device_memory_used"]  # noqa: E731
    with_one = used()
    others = [make(dataset, 32, socket=daemon.socket) for _ in range(3)]
    for other in others:
        next(iter(other))
    assert used() > with_one
    for other in others:
        other.close()
    wait_until(lambda: used() == with_one, 20, "the memory of closed sessions")


@pytest.mark.parametrize("policy", ["fail", "skip", "substitute"])
def test_damaged_data_is_treated_as_the_cpu_engine_treats_it(image_folder, pack, tmp_path, policy):
    source, numbers = tmp_path / "source", random.Random(5)
    shutil.copytree(image_folder, source)
    for path in sorted(source.glob("*/*.jpg"))[::9]:
        data = bytearray(path.read_bytes())
        for _ in range(20):
            data[numbers.randrange(len(data) // 2, len(data) - 2)] ^= 1 << numbers.randrange(8)
        path.write_bytes(data)
    dataset = pack(source, tmp_path / "packed")

    def outcome(engine):
        got = []
        iterator = iter(make(dataset, 8, engine, on_bad_sample=policy))
        while True:
            try:
                got.append([part.cpu() for part in next(iterator)])
            except hr.BadSampleError as error:
                got.append([str(error)])
            except StopIteration:
                return got

    assert same(outcome("gpu"), outcome("cpu"))


def test_two_daemons_and_two_loaders_on_one_gpu(dataset, start_daemon):
    expected = list(make(dataset, 16, "cpu"))
    daemons = [start_daemon(os.path.dirname(dataset)) for _ in range(2)]
    loaders = [make(dataset, socket=daemon.socket) for daemon in daemons for _ in range(2)]
    for batches in zip(*loaders):
        first = expected.pop(0)
        assert all(same([batch], [first]) for batch in batches)


def test_a_killed_trainers_memory_comes_back(dataset, start_daemon, script):
    daemon = start_daemon(os.path.dirname(dataset))
    mine = make(dataset, 16, socket=daemon.socket)
    expected = list(mine)
    used = mine._link.request(4, {})["gpus"][0]["device_memory_used"]
    run = script(
        """
import sys, time
import headrace.torch as hr
loader = hr.DataLoader(sys.argv[1], 16, device="cuda", engine="gpu", transform=[hr.RandomResizedCrop(224)], socket=sys.argv[2])
iterator = iter(loader)
held = [next(iterator) for _ in range(3)]
print("ready", flush=True)
time.sleep(600)
""",
        dataset,
        daemon.socket,
    )
    assert run.line() == "ready"
    assert mine._link.request(4, {})["gpus"][0]["device_memory_used"] > used
    run.process.kill()
    wait_until(lambda: mine._link.request(4, {})["gpus"][0]["device_memory_used"] == used, 20, "the dead trainer's memory")
    mine.set_epoch(0)
    assert same(list(mine), expected)
