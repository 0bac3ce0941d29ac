"""device="cuda" on a real GPU: what the loop gets, and when a slot may be filled again.

A kernel that only waits (torch.cuda._sleep) holds a stream up, so that what comes too early shows in the contents.
"""

import gc
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from loaders import same, samples, session_of
from processes import wait_until

import headrace.torch as hr
from headrace import _copying, _gpu

if not torch.cuda.is_available():
    pytest.skip("no GPU: torch.cuda.is_available() is False", allow_module_level=True)

TRAIN = [hr.RandomResizedCrop(224), hr.RandomHorizontalFlip(), hr.Normalize()]
SECOND = 2_000_000_000  # cycles: about as long on today's GPUs


_engine = "cpu"


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def engine(request):
    """Who makes the batches that come to the GPU: every test here runs with both."""
    global _engine
    _engine = request.param
    yield request.param
    _engine = "cpu"


def make(dataset, batch_size=16, device="cuda", **arguments):
    engine = "cpu" if device == "cpu" else _engine
    arguments = {"transform": TRAIN, "engine": engine, **arguments}
    return hr.DataLoader(dataset, batch_size, True, device=device, return_index=True, **arguments)


@pytest.fixture(scope="module")
def expected(dataset):
    """Two epochs on the CPU."""
    loader = make(dataset, device="cpu")
    return [list(loader), list(loader)]


def batch_is_ready(loader):
    wait_until(lambda: session_of(loader)["slots_ready"] > 0, 20, "a batch")


def rings():
    """The rings that this process has mapped, without those of dropped loaders."""
    gc.collect()
    _copying._release_retired(wait=True)
    with open("/proc/self/maps") as maps:
        return {line.split()[4] for line in maps if "memfd:" in line}


def hold(stream, cycles=SECOND):
    """Keeps the stream busy; returns an event that passes behind."""
    event = torch.cuda.Event()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(cycles)
        event.record()
    return event


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_batches_equal_those_on_the_cpu(dataset, dtype, memory_format):
    transform = TRAIN[:2] if dtype == torch.uint8 else TRAIN
    arguments = dict(dtype=dtype, memory_format=memory_format, transform=transform)
    loader = make(dataset, **arguments)
    for _ in range(2):
        cpu = make(dataset, device="cpu", **arguments)
        cpu.set_epoch(loader.epoch)
        batches = list(loader)
        assert same(batches, list(cpu))
        for images, labels, index in batches:
            assert images.is_cuda and labels.is_cuda and not index.is_cuda
            assert images.dtype == dtype and images.is_contiguous(memory_format=memory_format)
    stats = loader.stats()
    assert stats["copied_batches"] == 0 and stats["engine"] == _engine


def test_texts_and_numbers_come_too(pack, image_folder, tmp_path):
    names = sorted(path.relative_to(image_folder) for path in image_folder.glob("*/*.jp*g"))[:7]
    rows = [f"{image_folder / name},{i},{i / 8},Zürich {i}" for i, name in enumerate(names)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,score,caption", *rows]) + "\n")
    packed = pack(tmp_path / "list.csv", tmp_path / "packed", "--list")
    for rank in range(5):  # the last step has empty parts
        arguments = dict(fields=["caption", "image", "score"], rank=rank, world_size=5, last_batch="partial")
        batches = list(make(packed, 1, **arguments))
        assert same(batches, list(make(packed, 1, device="cpu", **arguments)))
        for caption, images, score, _ in batches:
            assert isinstance(caption, list) and images.is_cuda and score.is_cuda and score.dtype == torch.float64


def test_no_slot_is_filled_again_while_a_copy_from_it_is_still_queued(dataset, expected):
    loader = make(dataset)
    iterator = iter(loader)
    got = [next(iterator)]
    done = hold(loader._session._gpu.stream, 2 * SECOND)
    leased = 0
    for _ in range(4):
        batch_is_ready(loader)
        got.append(next(iterator))
        leased = max(leased, loader.stats()["slots_leased"] if not done.query() else 0)
    got += list(iterator)
    assert leased >= 3  # so many copies were held up
    assert done.query() and same(got, expected[0])


def test_next_returns_while_the_copy_and_the_trainers_kernels_still_run(dataset, expected):
    loader = make(dataset)
    iterator = iter(loader)
    got = [next(iterator)]
    torch.cuda.synchronize()
    copies = hold(loader._session._gpu.stream)
    kernels = hold(torch.cuda.current_stream())
    batch_is_ready(loader)
    torch.cuda.set_sync_debug_mode("error")
    try:
        got += [next(iterator) for _ in range(3)]  # the last one's copy is behind the kernel
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not copies.query() and not kernels.query()
    assert same(got, expected[0][:4])


def test_the_current_stream_waits_for_the_copy(dataset, expected):
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        loader = make(dataset)
        iterator = iter(loader)
        with torch.cuda.stream(stream):
            sums = [next(iterator)[0].double().sum()]
            hold(loader._session._gpu.stream, SECOND // 2)
            sums += [images.double().sum() for images, *_ in iterator]
        stream.synchronize()
        assert [s.item() for s in sums] == pytest.approx([images.double().sum().item() for images, *_ in expected[0]], abs=1e-3)


def test_a_dropped_batchs_memory_is_not_used_again_before_the_stream_has_read_it(dataset, expected):
    loader = make(dataset, 16)
    sums = []
    for images, *_ in loader:
        hold(torch.cuda.current_stream(), SECOND // 20)
        sums.append(images.double().sum())
        del images
    assert [s.item() for s in sums] == pytest.approx([images.double().sum().item() for images, *_ in expected[0]], abs=1e-3)


def test_a_batch_used_on_another_stream_after_record_stream_stays_right(dataset, expected):
    loader, other, sums = make(dataset), torch.cuda.Stream(), []
    for images, *_ in loader:
        other.wait_stream(torch.cuda.current_stream())
        hold(other, SECOND // 20)
        with torch.cuda.stream(other):
            sums.append(images.double().sum())
        images.record_stream(other)
        del images
    other.synchronize()
    assert [s.item() for s in sums] == pytest.approx([images.double().sum().item() for images, *_ in expected[0]], abs=1e-3)


def test_batches_kept_and_changed_in_place_spoil_no_other(dataset, expected):
    loader = make(dataset)
    for number in range(2):
        kept = []
        for step, batch in enumerate(loader):
            if step % 2:
                batch[0].fill_(float("nan"))
                batch[1].zero_()
            else:
                kept.append(batch)
        assert same(kept, expected[number][::2])


def test_memory_stays_constant(dataset):
    loader = make(dataset, 32)

    def epoch():
        for images, labels, _ in loader:
            (images.float().mean() + labels.float().mean()).item()
        gc.collect()
        torch.cuda.synchronize()
        with open("/proc/self/status") as status:
            anonymous = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        return torch.cuda.memory_reserved(), rings(), anonymous

    for _ in range(3):
        reserved, mapped, anonymous = epoch()
    for _ in range(20):
        last = epoch()
    assert last[:2] == (reserved, mapped) and last[2] - anonymous < 4096


def test_labels_that_are_kept_hold_no_images(dataset):
    loader, labels = make(dataset, 32), []
    for _ in range(2):
        for batch in loader:
            labels.append(batch[1])
    del batch
    loader.close()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    labels.clear()
    assert before - torch.cuda.memory_allocated() <= 10 * 512


def test_an_epoch_is_resumed_in_the_middle(dataset, expected):
    loader = make(dataset)
    iterator = iter(loader)
    got = [next(iterator) for _ in range(3)]
    resumed = make(dataset)
    resumed.load_state_dict(loader.state_dict())
    got += list(resumed)
    assert same(got, expected[0])
    loader.load_state_dict(resumed.state_dict())
    assert same(list(loader), expected[1])


def test_no_batch_is_lost_or_twice_when_the_daemon_is_killed(dataset, start_daemon, tmp_path):
    socket = tmp_path / "named.sock"
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    expected, got, others = list(make(dataset, 4, device="cpu", socket=socket)), [], rings()
    loader = make(dataset, 4, socket=socket)
    for batch in loader:
        got.append(batch)
        if len(got) in (2, 13, 24):
            daemon.kill()
            daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    assert loader.stats()["reconnections"] == 3 and same(got, expected)
    next(iter(loader))
    assert len(rings() - others) == 1  # the dead daemons' rings are gone
    loader.close()
    assert not rings() - others


def test_a_loader_is_dropped_in_the_middle_of_a_graphs_capture(dataset, expected):
    others = rings()
    loader = make(dataset)
    next(iter(loader))
    torch.cuda.synchronize()
    x = torch.zeros(1000, device="cuda")
    assert len(rings() - others) == 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        del loader
        gc.collect()
    x.fill_(2)
    graph.replay()
    assert y.sum().item() == 3000
    assert same(list(make(dataset)), expected[0])
    assert not rings() - others


def test_a_graph_is_replayed_between_batches(dataset, expected):
    static = torch.zeros(16, 3, 224, 224, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = static.double().sum()
    sums = []
    for images, *_ in make(dataset):
        static.zero_()
        static[: len(images)].copy_(images)
        graph.replay()
        sums.append(total.item())
    assert sums == pytest.approx([images.double().sum().item() for images, *_ in expected[0]], abs=1e-3)


@pytest.mark.parametrize("engine", ["cpu"], indirect=True)
def test_memory_that_cuda_does_not_register_is_a_warning_and_right(dataset, expected, monkeypatch):
    register = _gpu.Gpu.pin
    monkeypatch.setattr(_gpu.Gpu, "pin", lambda gpu, address, size: register(gpu, 0, size))  # an error of the runtime
    with pytest.warns(UserWarning, match="pinned"):
        assert same(list(make(dataset)), expected[0])
    torch.zeros(10, device="cuda").add_(1).sum().item()  # no kernel is blamed for it


@pytest.mark.parametrize("engine", ["cpu"], indirect=True)
def test_pinned_batches_are_copied_by_the_user_on_a_side_stream(dataset, expected):
    device = torch.device("cuda", torch.cuda.device_count() - 1)
    side, got = torch.cuda.Stream(device), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = make(dataset, device="cpu", pin_memory=True)
    for images, labels, index in loader:
        assert images.is_pinned() and labels.is_pinned()
        with torch.cuda.stream(side):
            torch.cuda._sleep(SECOND // 20)
            got.append((images.to(device, non_blocking=True), labels.to(device, non_blocking=True), index))
        del images, labels  # while the copy still waits
    side.synchronize()
    assert same(got, expected[0]) and got[0][0].device == device


def test_the_second_gpu_by_its_number(dataset, expected):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    before = torch.cuda.current_device()
    batches = list(make(dataset, device="cuda:1"))
    assert torch.cuda.current_device() == before
    assert all(images.device.index == labels.device.index == 1 for images, labels, _ in batches)
    assert same(batches, expected[0])


def test_the_current_device_when_the_first_batch_is_taken(dataset, expected):
    last = torch.cuda.device_count() - 1
    loader = make(dataset)
    with torch.cuda.device(last):
        images = next(iter(loader))[0]
    assert images.device.index == last
    assert all(images.device.index == last for images, *_ in loader)


@pytest.mark.parametrize("engine", ["cpu"], indirect=True)
def test_a_device_that_is_not_there_is_refused(dataset):
    with pytest.raises(hr.InvalidArgumentError, match="GPU"):
        make(dataset, device=f"cuda:{torch.cuda.device_count()}")


def test_threads_that_have_not_used_the_gpu_take_turns(dataset, expected):
    iterator, got = iter(make(dataset)), {}

    def take(steps):
        for step in steps:
            images, labels, index = next(iterator)
            got[step] = (images.cpu(), labels.cpu(), index)

    for steps in ([0, 1], [2], [3, 4, 5], [6, 7, 8]):
        thread = threading.Thread(target=take, args=(steps,))
        thread.start()
        thread.join()
    assert same([got[step] for step in range(9)], expected[0])


def test_batches_copied_ahead_in_inference_mode_can_be_trained_with(dataset, expected):
    loader, weight = make(dataset), torch.ones(1, device="cuda", requires_grad=True)
    iterator = iter(loader)
    with torch.inference_mode():
        next(iterator)
        batch_is_ready(loader)
        next(iterator)
    for images, *_ in iterator:
        (images * weight).sum().backward()
    total = sum(images.double().sum().item() for images, *_ in expected[0][2:])
    assert weight.grad.item() == pytest.approx(total, rel=1e-3)


def test_every_sample_comes_once_over_epochs(dataset):
    loader = make(dataset, 7)
    for _ in range(4):
        assert sorted(samples(loader)) == list(range(131))


def test_a_static_batch_is_filled_in_place_epoch_after_epoch(dataset, expected):
    loader = make(dataset)
    static = loader.static_batch()
    addresses = [tensor.data_ptr() for tensor in static]
    for number in range(2):
        for batch in expected[number]:
            assert loader.advance() == len(batch[0])
            assert same([[tensor[: len(batch[0])] for tensor in static]], [batch])
    assert [tensor.data_ptr() for tensor in loader.static_batch()] == addresses
    assert loader.epoch == 1


def test_advance_waits_for_no_kernel(dataset, expected):
    loader = make(dataset)
    images = loader.static_batch()[0]
    loader.advance()
    torch.cuda.synchronize()
    done = hold(torch.cuda.current_stream())
    batch_is_ready(loader)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loader.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not done.query()
    assert torch.equal(images.cpu(), expected[0][1][0])


def test_the_example_replays_a_graph_and_sees_the_labels_that_were_drawn(dataset, engine):
    example = Path(__file__).resolve().parents[2] / "examples" / "cuda_graph.py"
    command = [sys.executable, str(example), dataset, "--batch-size", "16", "--engine", engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert f"8 replays, engine {engine}" in done.stdout


@pytest.mark.parametrize("engine", ["cpu"], indirect=True)
def test_a_static_batch_holds_no_text_and_is_on_a_gpu(pack, image_folder, tmp_path, dataset):
    name = next(image_folder.glob("*/*.jp*g"))
    (tmp_path / "list.csv").write_text(f"path,label,caption\n{name},0,a\n")
    packed = pack(tmp_path / "list.csv", tmp_path / "packed", "--list")
    with pytest.raises(hr.UnsupportedError, match="caption"):
        make(packed, 1, fields=["image", "caption"]).static_batch()
    with pytest.raises(hr.UnsupportedError, match="cuda"):
        make(dataset, device="cpu").static_batch()
