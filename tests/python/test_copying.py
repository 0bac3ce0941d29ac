"""Batches copied ahead into GPU memory: the loader's part, on a fake GPU. The real one's is in tests/gpu."""

import gc
import os
import shutil
import signal
import time
import warnings
import weakref

import fake_gpu
import pytest
import torch
from loaders import same, samples, session_of
from processes import wait_until

import headrace.torch as hr
from headrace import _copying, _gpu

LARGE = [hr.RandomResizedCrop(96)]


@pytest.fixture(autouse=True)
def gpus(monkeypatch):
    yield fake_gpu.install(monkeypatch.setattr)
    _copying._release_retired(wait=True)


def make(dataset, batch_size=16, device="cuda", **arguments):
    return hr.DataLoader(dataset, batch_size, device=device, **{"transform": LARGE, "shuffle": True, **arguments})


def ready(loader):
    """Waits until the daemon has filled every slot that it may."""
    before = None
    while before != (before := session_of(loader)["batches"]):
        time.sleep(0.2)


def test_batches_equal_those_on_the_cpu_over_epochs(dataset, gpus):
    loader = make(dataset, return_index=True)
    for _ in range(3):
        epoch = loader.epoch
        cpu = make(dataset, device="cpu", return_index=True)
        cpu.set_epoch(epoch)
        assert same(list(loader), list(cpu))
    stats = loader.stats()
    assert stats["copied_batches"] == 0 and stats["samples"] == 3 * 131
    assert len(gpus) == 1 and len(gpus[0].pinned) == stats["slots"] == 4


def test_the_cpu_makes_the_batches_where_the_daemon_has_no_such_gpu(dataset, gpus):
    loader = make(dataset, engine="auto")
    assert same(list(loader), list(make(dataset, device="cpu")))
    assert loader.stats()["engine"] == "cpu" and session_of(loader)["engine"] == "cpu"
    with pytest.raises(hr.UnsupportedError, match=r'engine = "gpu"'):
        next(iter(make(dataset, engine="gpu")))


def test_a_loop_that_waits_asks_for_the_gpu_once_and_gets_every_batch(dataset, start_daemon, gpus):
    """There is none: that session is opened anew, and goes on with the CPU."""
    daemon = start_daemon(os.path.dirname(dataset), "--threads", "4")
    loader = make(dataset, 8, engine="auto", socket=daemon.socket, num_workers=1, transform=[hr.RandomResizedCrop(32)])
    cpu = make(dataset, 8, device="cpu", transform=[hr.RandomResizedCrop(32)])
    epochs, sessions, deadline = [], set(), time.monotonic() + 60
    while len(sessions) < 2 and time.monotonic() < deadline:
        epochs.append([])
        for batch in loader:
            epochs[-1].append(batch)
            sessions.add(loader._session.id)
    started = time.monotonic()
    while time.monotonic() < started + 2:
        epochs.append(list(loader))
    assert len(sessions | {loader._session.id}) == 2
    assert all(same(epoch, list(cpu)) for epoch in epochs)
    stats = loader.stats()
    assert stats["reconnections"] == 0 and stats["engine"] == "cpu" and loader.state_dict()["epoch"] == len(epochs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_layouts_survive_the_copy(dataset, dtype, memory_format):
    arguments = dict(dtype=dtype, memory_format=memory_format)
    copied, expected = list(make(dataset, **arguments)), list(make(dataset, device="cpu", **arguments))
    assert same(copied, expected)
    assert all(images.is_contiguous(memory_format=memory_format) for images, _ in copied)
    assert all(images.stride() == other.stride() for (images, _), (other, _) in zip(copied, expected))


def test_small_and_empty_batches_and_every_kind_of_field(pack, image_folder, tmp_path):
    names = sorted(path.relative_to(image_folder) for path in image_folder.glob("*/*.jp*g"))[:13]
    rows = [f"{image_folder / name},{i},{i / 8},Zürich {i}" for i, name in enumerate(names)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,score,caption", *rows]) + "\n")
    packed = pack(tmp_path / "list.csv", tmp_path / "packed", "--list")
    for fields in (["caption", "image", "score", "label"], ["caption"], ["label", "caption"]):
        for rank in range(5):
            arguments = dict(fields=fields, rank=rank, world_size=5, last_batch="partial", return_index=True)
            if "image" not in fields:
                arguments["transform"] = None
            copied, cpu = list(make(packed, 2, **arguments)), list(make(packed, 2, device="cpu", **arguments))
            assert same(copied, cpu) and sorted(map(len, copied))[0] == len(fields) + 1


def test_ready_batches_are_copied_ahead_up_to_prefetch_factor(dataset, gpus):
    for prefetch_factor in (1, 2, 5):
        loader = make(dataset, 4, prefetch_factor=prefetch_factor)
        iterator = iter(loader)
        next(iterator)
        for _ in range(3):
            ready(loader)
            next(iterator)
            assert len(loader._session._ahead) == prefetch_factor
        loader.close()


def test_a_slot_is_given_back_only_when_the_copy_out_of_it_is_done(dataset, gpus):
    expected = list(make(dataset, 8, device="cpu"))
    loader = make(dataset, 8, timeout=1)
    iterator = iter(loader)
    got = [next(iterator)]
    gpu = gpus[0]
    gpu.run()
    gpu.automatic = False
    with pytest.raises(TimeoutError, match="has not finished copying"):
        while True:
            got.append(next(iterator))
    assert gpu.num_queued() == loader.stats()["slots_leased"] == 4
    gpu.run(1)  # one slot: the next batch comes, and no more
    with pytest.raises(TimeoutError):
        while True:
            got.append(next(iterator))
    gpu.automatic = True
    got += list(iterator)
    gpu.run()
    assert same(got, expected) and gpu.most_queued == 4


def test_a_batch_that_is_ready_is_delivered_while_its_copy_still_runs(dataset, gpus):
    loader = make(dataset, 8)
    iterator = iter(loader)
    first = next(iterator)
    gpus[0].run()
    gpus[0].automatic = False
    ready(loader)
    images, labels = next(iterator)
    assert gpus[0].queue  # nothing has run
    gpus[0].run()
    cpu = list(make(dataset, 8, device="cpu"))
    assert same([first, (images, labels)], cpu[:2])


def test_a_batch_that_is_deleted_is_freed_at_once(dataset):
    iterator = iter(make(dataset))
    for _ in range(3):
        batch = next(iterator)
        references = [weakref.ref(tensor) for tensor in batch]
        del batch
        assert [reference() for reference in references] == [None, None]


def test_what_was_copied_ahead_is_discarded_when_the_loader_goes_elsewhere(dataset):
    def cpu(epoch, start=0):
        loader = make(dataset, 8, device="cpu")
        loader.set_epoch(epoch)
        return list(loader)[start:]

    loader = make(dataset, 8)
    iterator = iter(loader)
    assert same([next(iterator) for _ in range(3)], cpu(0)[:3])
    state = loader.state_dict()
    assert state["position"] == 24  # delivered, not copied
    ready(loader)
    assert same([next(iterator)], cpu(0)[3:4])
    loader.load_state_dict(state)
    assert same(list(loader), cpu(0)[3:])
    ready(loader)
    loader.set_epoch(7)
    assert same(list(loader), cpu(7))
    other = make(dataset, 8)
    other.load_state_dict(state)
    assert same(list(other), cpu(0)[3:])


def test_the_epoch_that_comes_anyway_throws_nothing_away(dataset, gpus):
    loader = make(dataset, 16)
    list(loader)
    ready(loader)
    iterator = iter(loader)
    next(iterator)
    ahead = [batch.values for batch in loader._session._ahead]
    loader.set_epoch(loader.epoch + 1)
    rest = list(iterator)
    assert rest[0][0] is ahead[0][0] and rest[1][0] is ahead[1][0]
    next(iter(loader))
    assert loader.stats()["batches"] == 9 + 9 + 1


def test_no_batch_is_lost_or_twice_when_the_daemon_is_killed(dataset, start_daemon, tmp_path, gpus):
    socket = tmp_path / "named.sock"
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    loader = make(dataset, 4, socket=socket, return_index=True)
    expected = list(make(dataset, 4, device="cpu", return_index=True, socket=socket))
    got = []
    for batch in loader:
        got.append(batch)
        if len(got) in (3, 12, 20, 28):
            daemon.kill()
            daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    assert same(got, expected)
    assert loader.stats()["reconnections"] == 4
    next(iter(loader))
    gpu = gpus[0]
    # The dead daemons' rings are let go; a slot is pinned when it is first used, which some of theirs never were.
    assert 4 <= len(gpu.unpinned) <= 4 * 4 and len(gpu.pinned) <= 4
    rings = {fake_gpu.mapped(slot) for slot in gpu.pinned}
    assert len(rings) == 1
    loader.close()
    assert not gpu.pinned and all("memfd" not in fake_gpu.mapped(slot) for slot in gpu.unpinned)


def test_what_the_dead_daemon_finished_and_what_was_copied_is_delivered_without_it(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset))
    loader = make(dataset, 4, socket=daemon.socket, timeout=1, return_index=True)
    iterator = iter(loader)
    got = [next(iterator)]
    ready(loader)
    got.append(next(iterator))
    ready(loader)
    daemon.kill()
    with pytest.raises(TimeoutError):
        while True:
            got.append(next(iterator))
    assert len(got) >= 2 + 2  # those that were copied ahead, and what the ring held
    start_daemon(os.path.dirname(dataset), socket=daemon.socket)
    got += list(iterator)  # the loader stayed usable
    assert same(got, list(make(dataset, 4, device="cpu", return_index=True)))


@pytest.mark.parametrize("dies", [True, False], ids=["daemon dies", "daemon lives"])
def test_a_batch_whose_gpu_memory_cannot_be_had_is_neither_lost_nor_twice(dataset, start_daemon, tmp_path, monkeypatch, dies):
    socket = tmp_path / "named.sock"
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    expected = list(make(dataset, 8, device="cpu", return_index=True, socket=socket))
    new_slot, failures = _copying.CopyingSession._new_slot, 0

    def fails_now_and_then(session):  # as the request for the memory does when the daemon has died
        nonlocal daemon, failures
        if failures < 1 + (len(got) >= 5):
            failures += 1
            if dies:
                daemon.kill()
                daemon = start_daemon(os.path.dirname(dataset), socket=socket)
                session._connection.device_memory(session._library.hr_session_info(session._handle).contents.session_id, 10)
            raise hr.DaemonError("refused")
        return new_slot(session)

    monkeypatch.setattr(_copying.CopyingSession, "_new_slot", fails_now_and_then)
    loader, got, errors = make(dataset, 8, return_index=True, socket=socket), [], 0
    iterator = iter(loader)
    while len(got) < len(expected):
        try:
            got.append(next(iterator))
        except hr.DaemonError:
            errors += 1
        if len(got) == 5:
            loader._session._slots.clear()  # asks for the next slot anew
    assert same(got, expected)
    assert failures == 2 and errors == (0 if dies else 2)
    assert loader.stats()["reconnections"] == (2 if dies else 0)


def test_bad_samples_come_where_they_belong(dataset, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(dataset, damaged)
    (shard,) = damaged.glob("*.lmdb")
    data = bytearray(shard.read_bytes())
    for number in (10, 11, 77):
        image = hr.DataLoader(dataset, 1, transform=LARGE).dataset[number][0]
        at = data.find(image)
        data[at : at + len(image)] = bytes(len(image))
    shard.write_bytes(data)

    def walk(loader):
        iterator, steps = iter(loader), []
        while True:
            try:
                steps.append(next(iterator)[-1].tolist())
            except hr.BadSampleError as error:
                steps.append(error.sample)
            except StopIteration:
                return steps, loader.stats()["bad_samples"]

    arguments = dict(batch_size=4, shuffle=False, return_index=True)
    for policy in ("fail", "skip", "substitute"):
        steps, bad = walk(make(damaged, on_bad_sample=policy, **arguments))
        assert (steps, bad) == walk(make(damaged, device="cpu", on_bad_sample=policy, **arguments))
        assert bad == {"fail": 2}.get(policy, 3)
        assert steps[2] == {"fail": 10, "skip": [8, 9]}.get(policy, steps[2])


def test_a_loader_that_is_dropped_makes_no_call_of_cuda_then(dataset, gpus):
    loader = make(dataset)
    next(iter(loader))
    gpu = gpus[0]
    calls = gpu.calls
    del loader
    gc.collect()
    assert gpu.calls == calls and len(gpu.pinned) > 0  # still mapped, too: FakeGpu.unpin looks
    gpu.run()
    make(dataset).close()  # nothing was opened: nothing to do
    assert len(gpu.pinned) > 0
    other = make(dataset)
    next(iter(other))
    assert not gpu.pinned


def test_close_waits_for_the_copies_and_lets_everything_go(dataset, gpus):
    loader = make(dataset)
    iterator = iter(loader)
    first = next(iterator)
    (gpu,) = gpus
    gpu.automatic = False
    ready(loader)
    second = next(iterator)
    assert gpu.queue
    slots = set(gpu.pinned)
    loader.close()
    assert not gpu.queue and not gpu.pinned and set(gpu.unpinned) == slots
    assert all("memfd" not in fake_gpu.mapped(slot) for slot in slots)
    assert same([first, second], list(make(dataset, device="cpu"))[:2])


def test_memory_that_cannot_be_pinned_is_a_warning_and_right(dataset, monkeypatch):
    class Unpinnable(fake_gpu.FakeGpu):
        def pin(self, address, size):
            super().pin(address, size)
            return False

        def unpin(self, address):
            raise AssertionError("it was not registered")

    monkeypatch.setattr(_gpu, "Gpu", Unpinnable)
    with pytest.warns(UserWarning, match="pinned"):
        with make(dataset) as loader:
            assert same(list(loader), list(make(dataset, device="cpu")))


def test_ctrl_c_at_any_place_loses_no_batch(dataset):
    expected = [index.tolist() for *_, index in make(dataset, 4, device="cpu", return_index=True)]
    package = os.path.dirname(hr.__file__)
    interrupts = 0

    def interrupt(_, frame):
        while frame is not None:
            if os.path.dirname(frame.f_code.co_filename) == package:
                raise KeyboardInterrupt
            frame = frame.f_back

    loader = make(dataset, 4, return_index=True)
    next(iter(loader))
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        for _ in range(20):
            try:
                loader.set_epoch(0)
                iterator = iter(loader)
            except KeyboardInterrupt:
                continue
            while True:
                before = loader._progress.position
                try:
                    batch = next(iterator, None)
                except KeyboardInterrupt:
                    interrupts += 1
                    continue
                if batch is None:
                    break
                assert expected[before // 4] == batch[-1].tolist()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupts > 0
    assert samples(make(dataset, 4, return_index=True)) == sum(expected, [])


def test_a_forked_child_touches_nothing_of_the_parents(dataset, script):
    run = script(
        """
        import gc, os, sys
        sys.path.insert(0, sys.argv[2])
        import fake_gpu
        import headrace.torch as hr

        def make(device):
            arguments = dict(transform=[hr.RandomResizedCrop(96)], shuffle=True, return_index=True, device=device)
            return hr.DataLoader(sys.argv[1], 8, **arguments)

        expected = [index.tolist() for *_, index in make("cpu")]
        gpus = fake_gpu.install()
        loader = make("cuda")
        iterator = iter(loader)
        got = [next(iterator) for _ in range(2)]
        calls = gpus[0].calls
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                got += list(iterator)                  # a session of its own, on a GPU of its own
                assert len(gpus) == 2
                assert [index.tolist() for *_, index in got] == expected
                loader.close()
                del loader, iterator
                gc.collect()
                assert gpus[0].calls == calls
                status = 0
            finally:
                os._exit(status)
        got += list(iterator)
        assert os.waitpid(pid, 0)[1] == 0
        assert [index.tolist() for *_, index in got] == expected
        """,
        dataset,
        os.path.dirname(fake_gpu.__file__),
    )
    run.finish()


def test_devices_that_are_not_there_are_refused_at_once(dataset, monkeypatch):
    with pytest.raises(hr.InvalidArgumentError, match="2 GPU"):
        make(dataset, device="cuda:2")
    with pytest.raises(hr.UnsupportedError, match="cpu"):
        make(dataset, device="meta")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(hr.UnsupportedError, match="no GPU"):
        make(dataset, device="cuda")


def test_pin_memory_has_nothing_to_do_on_a_gpu(dataset):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(list(make(dataset, pin_memory=True)), list(make(dataset, device="cpu")))


def test_a_loader_on_the_cpu_does_not_initialise_cuda(dataset, script):
    run = script(
        """
        import sys, torch
        import headrace.torch as hr
        torch._C._cuda_init = torch.cuda._lazy_init = None     # any use of CUDA is an error from here
        assert len(list(hr.DataLoader(sys.argv[1], 16, transform=[hr.Resize((24, 20))]))) == 9
        assert not torch.cuda.is_initialized()
        """,
        dataset,
    )
    run.finish()


def test_sessions_of_dropped_and_closed_loaders_end(dataset):
    loader = make(dataset)
    next(iter(loader))
    link, numbers = loader._link, [loader._session.id]
    del loader
    other = make(dataset)
    next(iter(other))
    numbers.append(other._session.id)
    other.close()
    wait_until(lambda: not {s["id"] for s in link.request(4, {})["sessions"]} & set(numbers), 10, "the end of the sessions")
