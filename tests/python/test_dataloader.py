"""What the loop gets: tensors, their order, their lifetime."""

import gc
import math
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from processes import wait_until

import headrace.torch as hr

TRAIN = [hr.RandomResizedCrop(32), hr.RandomHorizontalFlip()]
SMALL = [hr.Resize((24, 20))]


def make(dataset, batch_size=16, **arguments):
    return hr.DataLoader(dataset, batch_size, **{"transform": SMALL, **arguments})


def test_a_batch_is_a_tuple_of_images_and_labels(dataset):
    images, labels = next(iter(make(dataset)))
    assert images.shape == (16, 3, 24, 20) and images.dtype == torch.float32 and images.is_contiguous()
    assert labels.shape == (16,) and labels.dtype == torch.int64
    assert 0.0 <= images.min() and images.max() <= 1.0 and images.std() > 0.05


def test_without_shuffle_samples_come_in_the_order_of_an_image_folder(dataset, image_folder):
    from torchvision.datasets import ImageFolder

    labels = torch.cat([labels for _, labels in make(dataset)])
    assert labels.tolist() == ImageFolder(image_folder).targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_dtype_and_memory_format_change_the_layout_only(dataset, dtype, memory_format):
    plain = torch.cat([images for images, _ in make(dataset, dtype=torch.uint8)])
    images = torch.cat([images for images, _ in make(dataset, dtype=dtype, memory_format=memory_format)])
    first = next(iter(make(dataset, dtype=dtype, memory_format=memory_format)))[0]
    assert first.dtype == dtype and first.is_contiguous(memory_format=memory_format)
    expected = plain if dtype == torch.uint8 else (plain.double() / 255).to(torch.float32).to(dtype)
    exact = torch.equal(images, expected)
    assert exact or (images.double() - plain.double() / 255).abs().max() < {torch.float32: 1e-6}.get(dtype, 4e-3)


def test_every_sample_comes_exactly_once_in_an_epoch_and_in_another_order_in_the_next(dataset):
    loader = make(dataset, shuffle=True, return_index=True)
    epochs = [torch.cat([index for *_, index in loader]).tolist() for _ in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(131))
    assert epochs[0] != epochs[1] != epochs[2]
    again = make(dataset, shuffle=True, return_index=True)
    assert torch.cat([index for *_, index in again]).tolist() == epochs[0]
    other = make(dataset, shuffle=True, return_index=True, seed=1)
    assert torch.cat([index for *_, index in other]).tolist() != epochs[0]


@pytest.mark.parametrize("last_batch, sizes", [(None, [40] * 3 + [11]), ("drop", [40] * 3), ("pad", [40] * 3 + [11])])
def test_the_last_batch_alone(dataset, last_batch, sizes):
    loader = make(dataset, 40, last_batch=last_batch)
    for _ in range(2):
        assert [len(labels) for _, labels in loader] == sizes
    assert len(loader) == len(sizes)


@pytest.mark.parametrize("last_batch, sizes", [("partial", [4, 4, 3]), ("pad", [4, 4, 4]), (None, [4, 4, 4]), ("drop", [])])
def test_the_last_batch_of_three_ranks(dataset, last_batch, sizes):
    """131 = 3 · 40 + 11."""
    arguments = {} if last_batch is None else {"last_batch": last_batch}
    loaders = [make(dataset, 40, rank=rank, world_size=3, return_index=True, **arguments) for rank in range(3)]
    epochs = [[batch[-1] for batch in loader] for loader in loaders]
    assert [len(epoch) for epoch in epochs] == [len(loaders[0])] * 3
    assert [len(epoch[0]) for epoch in epochs] == [40] * 3
    assert [len(epoch[1]) for epoch in epochs if len(epoch) > 1] == sizes
    together = torch.cat([batch for epoch in epochs for batch in epoch]).tolist()
    if last_batch == "partial":
        assert sorted(together) == list(range(131))
    elif last_batch != "drop":
        assert set(together) == set(range(131)) and len(together) == 132


def test_more_ranks_than_samples_left_gives_empty_batches_too(dataset):
    loaders = [make(dataset, 13, rank=rank, world_size=5, last_batch="partial") for rank in range(5)]  # 131 = 2 · 65 + 1
    lasts = [list(loader)[-1] for loader in loaders]
    assert sorted(len(labels) for _, labels in lasts) == [0, 0, 0, 0, 1]
    assert all(images.shape[1:] == (3, 24, 20) for images, _ in lasts)


def test_drop_last_is_drop_and_contradictions_are_refused(dataset):
    assert len(make(dataset, 40, drop_last=True)) == 3
    with pytest.raises(ValueError, match="contradicts"):
        make(dataset, drop_last=True, last_batch="pad")


def test_a_batch_larger_than_the_dataset_with_drop_last_is_an_empty_epoch(dataset):
    with pytest.warns(UserWarning, match="has no step"):
        loader = make(dataset, 500, drop_last=True)
    assert len(loader) == 0 and list(loader) == [] and list(loader) == []


def test_the_images_are_views_of_the_slot_and_labels_are_not(dataset):
    images, labels = next(iter(make(dataset, 64, transform=[hr.Resize((64, 64))])))
    mapped = [line.split() for line in open("/proc/self/maps") if "memfd:" in line]
    ranges = [tuple(int(part, 16) for part in line[0].split("-")) for line in mapped]
    inside = lambda tensor: any(low <= tensor.data_ptr() < high for low, high in ranges)  # noqa: E731
    assert inside(images) and not inside(labels)


def test_list_of_the_loader_holds_every_batch_unchanged(dataset):
    single = [(images.clone(), labels.clone()) for images, labels in make(dataset, 8, transform=[hr.Resize((96, 96))])]
    kept = list(make(dataset, 8, transform=[hr.Resize((96, 96))]))
    assert len(kept) == math.ceil(131 / 8)
    for (images, labels), (expected_images, expected_labels) in zip(kept, single):
        assert torch.equal(images, expected_images) and torch.equal(labels, expected_labels)


def test_the_first_batch_kept_for_a_picture_stays_as_it_was(dataset):
    loader = make(dataset, 32, transform=TRAIN, shuffle=True)
    first = copy = None
    for _ in range(6):
        for images, _ in loader:
            if first is None:
                first, copy = images, images.clone()
    assert torch.equal(first, copy)


def test_a_view_of_a_batch_keeps_it_as_well(dataset):
    loader = make(dataset, 32, transform=[hr.Resize((96, 96))])
    views = [images[1, 1, 5:9] for images, _ in loader]
    again = [images[1, 1, 5:9].clone() for images, _ in loader]
    gc.collect()
    assert all(torch.equal(view, other) for view, other in zip(views, again))


def test_work_in_place_on_a_batch_changes_no_later_batch(dataset):
    expected = [images.clone() for images, _ in make(dataset, 16)]
    loader = make(dataset, 16)
    for _ in range(4):
        for images, before in zip((images for images, _ in loader), expected):
            assert torch.equal(images, before)
            images.sub_(0.5).div_(0.25)
            images.relu_()
            images.fill_(float("nan"))


def test_an_evaluation_loop_may_collect_labels(dataset):
    targets, shapes = [], set()
    loader = make(dataset, 4, transform=[hr.Resize((96, 96))])
    for images, labels in loader:
        targets.append(labels)
        shapes.add(images.shape[1:])
    assert len(torch.cat(targets)) == 131
    assert loader.stats()["copied_batches"] == 0  # the labels kept no slot


def test_autograd_may_keep_a_batch_longer_than_the_loop(dataset):
    weight = torch.ones(1, requires_grad=True)
    losses = [(images * weight).sum() for images, _ in make(dataset, 8, transform=[hr.Resize((96, 96))])]
    expected = sum(images.sum().item() for images, _ in make(dataset, 8, transform=[hr.Resize((96, 96))]))
    sum(losses).backward()
    assert weight.grad.item() == pytest.approx(expected, rel=1e-4)


def test_batches_outlive_close_and_the_loader(dataset):
    loader = make(dataset, 32, transform=[hr.Resize((96, 96))])
    iterator = iter(loader)
    batches = [next(iterator)[0] for _ in range(3)]
    copies = [images.clone() for images in batches]
    loader.close()
    del loader, iterator
    gc.collect()
    other = list(make(dataset, 32, transform=[hr.Resize((96, 96))]))
    assert all(torch.equal(images, copy) for images, copy in zip(batches, copies)) and other


def test_pin_memory_without_an_accelerator_warns_as_pytorch_and_gives_right_copies(dataset):
    if torch.cuda.is_available():
        loader = make(dataset, pin_memory=True, transform=[hr.Resize((96, 96))])
        assert next(iter(loader))[0].is_pinned()
    else:
        with pytest.warns(UserWarning, match="no accelerator is found"):
            loader = make(dataset, pin_memory=True, transform=[hr.Resize((96, 96))])
    plain = [images.clone() for images, _ in make(dataset, transform=[hr.Resize((96, 96))])]
    copies = [images for images, _ in loader]
    assert len(copies) == 9 and all(torch.equal(a, b) for a, b in zip(copies, plain))
    assert loader.stats()["copied_batches"] == 0  # what was kept are copies already: no slot was short


def test_fields_choose_what_a_batch_holds_and_their_order(dataset):
    labels, images = next(iter(make(dataset, fields=["label", "image"])))
    assert labels.dtype == torch.int64 and images.ndim == 4
    (only,) = next(iter(hr.DataLoader(dataset, 10, fields=["label"])))
    assert len(only) == 10  # no transform is needed where no image is wanted
    images, index = next(iter(make(dataset, fields="image", return_index=True)))
    assert index.tolist() == list(range(16))


def test_text_and_numbers_of_a_list_come_as_str_and_tensors(pack, image_folder, tmp_path):
    names = sorted(path.relative_to(image_folder) for path in image_folder.glob("*/*.jp*g"))[:23]
    captions = ["", "Zürich", "naïve 日本", "a b,c"]
    lines = ["path,label,score,number,caption"]
    for i, name in enumerate(names):
        lines.append(f'{image_folder / name},{i % 5},{i / 8},{10**12 + i},"{captions[i % 4]}{i}"')
    table = tmp_path / "list.csv"
    table.write_text("\n".join(lines) + "\n")
    packed = tmp_path / "listed"
    import subprocess

    from headrace import _library

    subprocess.run([_library.executable_path(), "pack", "--list", table, packed], check=True, capture_output=True)
    fields = ["caption", "score", "number", "label"]
    rows = {"caption": [], "score": [], "number": [], "label": []}
    loader = hr.DataLoader(packed, 5, fields=fields)
    for batch in loader:
        assert isinstance(batch[0], list) and batch[1].dtype == torch.float64 and batch[2].dtype == torch.int64
        for field, values in zip(fields, batch):
            rows[field] += values if isinstance(values, list) else values.tolist()
    assert rows["caption"] == [captions[i % 4] + str(i) for i in range(23)]
    assert rows["score"] == [i / 8 for i in range(23)]
    assert rows["number"] == [10**12 + i for i in range(23)]
    assert rows["label"] == [i % 5 for i in range(23)]


def test_images_without_labels_come_alone(pack, image_folder, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, path in enumerate(sorted(image_folder.glob("*/*.jpg"))[:9]):
        (flat / f"{i}.jpg").write_bytes(path.read_bytes())
    loader = make(pack(flat, tmp_path / "packed"), 4)
    assert [len(batch) for batch in loader] == [1, 1, 1]
    assert loader.dataset.classes == [] and loader.dataset[0][1] is None


def test_the_dataset_answers_like_one(dataset, image_folder):
    from torchvision.datasets import ImageFolder

    folder, loader = ImageFolder(image_folder), make(dataset)
    mine = loader.dataset
    assert len(mine) == len(folder) == 131
    assert mine.classes == folder.classes and mine.class_to_idx == folder.class_to_idx
    assert "image" in mine.fields and "label" in mine.fields
    for i in (0, 17, 130, -1):
        path, label = folder.samples[i]
        assert mine[i] == (Path(path).read_bytes(), label)
    for bad in (131, -132):
        with pytest.raises(IndexError):
            mine[bad]


def test_the_first_iterator_raises_after_the_second_began(dataset):
    loader = make(dataset)
    first = iter(loader)
    next(first)
    second = iter(loader)
    with pytest.raises(hr.HeadraceError, match="iter.. was called again"):
        next(first)
    assert len(list(second)) == len(loader)
    with pytest.raises(StopIteration):
        next(second)


def test_a_closed_loader_says_so(dataset):
    with make(dataset) as loader:
        iterator = iter(loader)
        next(iterator)
    for call in (lambda: next(iterator), lambda: iter(loader)):
        with pytest.raises(hr.HeadraceError, match="closed"):
            call()
    assert loader.state_dict()["position"] == 16 and loader.dataset[0]
    loader.close()


def test_a_loader_that_nobody_holds_ends_its_session_without_the_garbage_collector(dataset):
    gc.disable()
    try:
        loader = make(dataset)
        next(iter(loader))
        number = loader._session.id
        link = loader._link
        assert number in [session["id"] for session in link.request(4, {})["sessions"]]
        del loader
        wait_until(lambda: number not in [s["id"] for s in link.request(4, {})["sessions"]], 10, "the end of the session")
    finally:
        gc.enable()


def test_stats_count_what_was_handed_out(dataset):
    loader = make(dataset)
    assert loader.stats()["batches"] == 0
    list(loader)
    stats = loader.stats()
    assert (stats["batches"], stats["samples"], stats["bad_samples"]) == (9, 131, 0)
    assert stats["waited_seconds"] > 0 and stats["between_calls_seconds"] > 0 and stats["samples_per_second"] > 0
    assert stats["engine"] == "cpu" and 1 <= stats["threads_in_use"] <= stats["threads"]
    assert stats["simd_target"] and stats["cpu_seconds_per_1000"] > 0


def test_the_same_batches_with_any_number_of_threads(dataset):
    expected = list(make(dataset, transform=TRAIN, shuffle=True, num_workers=1))
    for num_workers in (0, 2, None):
        got = list(make(dataset, transform=TRAIN, shuffle=True, num_workers=num_workers))
        assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(got, expected))


def test_the_same_batches_from_daemons_with_one_to_eight_threads(dataset, start_daemon):
    expected = list(make(dataset, transform=TRAIN, shuffle=True, dtype=torch.float16))
    for threads in range(1, 9):
        daemon = start_daemon(os.path.dirname(dataset), "--threads", str(threads))
        loader = make(dataset, transform=TRAIN, shuffle=True, dtype=torch.float16, socket=daemon.socket)
        got = list(loader)
        assert len(got) == len(expected) and loader.stats()["threads"] == threads
        assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(got, expected))
        daemon.kill()


def test_a_slow_loop_needs_few_threads_and_a_hurried_one_gets_all(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset), "--threads", "8")
    loader = make(dataset, 40, socket=daemon.socket)
    in_use = lambda: loader.stats()["threads_in_use"]  # noqa: E731
    deadline = time.monotonic() + 60
    while in_use() > 1:
        assert time.monotonic() < deadline, f"{in_use()} threads are in use by a loop that sleeps"
        for _ in loader:
            time.sleep(0.02)
    while in_use() < 8:
        assert time.monotonic() < deadline + 60, f"{in_use()} threads are in use by a loop that waits"
        for _ in loader:
            pass


def test_the_next_epoch_is_ready_before_it_is_asked_for(dataset):
    loader = make(dataset, 16)

    def session():
        return next(s for s in loader._link.request(4, {})["sessions"] if s["id"] == loader._session.id)

    for epoch in range(3):
        for _ in loader:
            pass
        wait_until(lambda: session()["slots_ready"] >= 3, 10, "batches of the next epoch")
        assert session()["epoch"] == epoch + 1
        made = session()["batches"]
        loader.set_epoch(epoch + 1)
        next(iter(loader))
        assert session()["batches"] <= made + 2  # the ready ones were used, none made again
        loader.set_epoch(epoch + 1)


def test_threads_share_an_iterator_and_get_each_batch_once(dataset):
    loader = make(dataset, 4, return_index=True)
    iterator, seen, lock = iter(loader), [], threading.Lock()

    def take():
        for *_, index in iterator:
            with lock:
                seen.extend(index.tolist())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(131))


def test_loaders_of_several_threads_do_not_mix(dataset):
    results = {}

    def run(rank):
        loader = make(dataset, 8, rank=rank, world_size=3, last_batch="partial", return_index=True)
        results[rank] = torch.cat([index for *_, index in loader]).tolist()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sum(results.values(), [])) == list(range(131))


def test_a_train_and_a_validation_loader_take_turns(dataset):
    train = make(dataset, 16, transform=TRAIN, shuffle=True)
    validation = make(dataset, 50, transform=[hr.Resize(40), hr.CenterCrop(32)])
    expected = [images.clone() for images, _ in make(dataset, 50, transform=[hr.Resize(40), hr.CenterCrop(32)])]
    for _ in range(3):
        assert sum(len(labels) for _, labels in train) == 131
        assert all(torch.equal(images, other) for (images, _), other in zip(validation, expected))


def test_the_sampler_has_what_scripts_for_distributed_sampler_call(dataset):
    loader = make(dataset, shuffle=True, return_index=True)
    loader.sampler.set_epoch(3)
    assert loader.epoch == 3
    third = torch.cat([index for *_, index in loader]).tolist()
    other = make(dataset, shuffle=True, return_index=True)
    for _ in range(3):
        list(other)
    assert torch.cat([index for *_, index in other]).tolist() == third


def test_attributes_that_scripts_read_are_there(dataset):
    loader = make(dataset, 16, num_workers=2, drop_last=True)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (16, 2, True, False)
    assert loader.timeout == 60 and loader.prefetch_factor == 2
