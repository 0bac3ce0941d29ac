"""Epochs and states of a real loader, also across processes and numbers of ranks."""

import json

import pytest
import torch

import headrace.torch as hr

TRANSFORM = [hr.RandomResizedCrop(16), hr.RandomHorizontalFlip()]


def make(dataset, batch_size=10, **arguments):
    return hr.DataLoader(dataset, batch_size, **{"shuffle": True, "transform": TRANSFORM, "return_index": True, **arguments})


def samples(batches):
    return [i for *_, index in batches for i in index.tolist()]


def take(loader, count):
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


@pytest.fixture(scope="module")
def epochs(dataset):
    """Sample numbers of three epochs in the global order."""
    loader = make(dataset)
    return [samples(loader) for _ in range(3)]


def test_epochs_count_by_themselves(dataset):
    loader = make(dataset)
    assert loader.epoch == 0
    for epoch in range(3):
        for _ in loader:
            assert loader.epoch == epoch
        assert loader.epoch == epoch + 1


def test_set_epoch_with_the_epoch_that_comes_anyway_throws_nothing_away(dataset, epochs):
    loader = make(dataset)
    for epoch in range(3):
        loader.set_epoch(epoch)
        assert samples(loader) == epochs[epoch]
    daemon = loader._link.request(4, {"session": loader._session.id})
    (session,) = [s for s in daemon["sessions"] if s["id"] == loader._session.id]
    assert session["batches"] <= 3 * 14 + session["slots"]  # a seek would have made some twice


def test_set_epoch_goes_anywhere_and_back(dataset, epochs):
    loader = make(dataset)
    for epoch in (2, 0, 1, 1):
        loader.set_epoch(epoch)
        assert samples(loader) == epochs[epoch]


def test_the_state_after_break_is_behind_the_last_batch(dataset, epochs):
    loader = make(dataset)
    for step, _ in enumerate(loader):
        if step == 4:
            break
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (0, 50)
    resumed = make(dataset)
    resumed.load_state_dict(state)
    assert samples(resumed) == epochs[0][50:]
    assert samples(resumed) == epochs[1]
    assert samples(loader) == epochs[1]  # the loader itself goes on with the next epoch


def test_the_state_at_the_end_of_an_epoch(dataset, epochs):
    loader = make(dataset)
    iterator = iter(loader)
    for _ in range(14):
        next(iterator)
    behind_last = loader.state_dict()
    assert (behind_last["epoch"], behind_last["position"]) == (0, 131)
    with pytest.raises(StopIteration):
        next(iterator)
    assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (1, 0)
    resumed = make(dataset)
    resumed.load_state_dict(behind_last)
    assert samples(resumed) == []
    assert samples(resumed) == epochs[1]


def test_a_loaded_state_survives_set_epoch_of_its_epoch(dataset, epochs):
    loader = make(dataset)
    take(loader, 3)
    state = loader.state_dict()
    resumed = make(dataset)
    resumed.load_state_dict(state)
    resumed.sampler.set_epoch(0)
    assert samples(resumed) == epochs[0][30:]
    resumed.load_state_dict(state)
    resumed.set_epoch(2)
    assert samples(resumed) == epochs[2]


def test_loading_a_state_ends_the_running_iteration(dataset, epochs):
    loader = make(dataset)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    next(iterator)
    loader.load_state_dict(state)
    with pytest.raises(hr.HeadraceError, match="state was loaded"):
        next(iterator)
    assert samples(loader) == epochs[0][10:]


def test_resuming_repeats_the_pixels_too(dataset):
    whole = [images.clone() for images, *_ in make(dataset)]
    loader = make(dataset)
    take(loader, 6)
    resumed = make(dataset)
    resumed.load_state_dict(loader.state_dict())
    assert all(torch.equal(images, other) for (images, *_), other in zip(resumed, whole[6:]))


@pytest.mark.parametrize("last_batch", ["partial", "pad", "drop"])
@pytest.mark.parametrize("worlds", [(1, 3), (4, 1), (2, 5)], ids=str)
def test_a_state_from_every_step_goes_on_with_another_number_of_ranks(dataset, epochs, worlds, last_batch):
    before, after = worlds
    first = make(dataset, 7, rank=0, world_size=before, last_batch=last_batch)
    iterator = iter(first)
    ranks = [make(dataset, 4, rank=rank, world_size=after, last_batch=last_batch) for rank in range(after)]
    for step in range(len(first)):
        next(iterator)
        position = first.state_dict()["position"]
        for loader in ranks:
            loader.load_state_dict(first.state_dict())
        rest = zip(*ranks, strict=True)
        got = [i for step_of_ranks in rest for *_, index in step_of_ranks for i in index.tolist()]
        expected = epochs[0][position:]
        if last_batch == "drop":
            expected = expected[: len(expected) // (4 * after) * 4 * after]
        elif last_batch == "pad" and len(expected) % after:
            expected = expected + epochs[0][: after - len(expected) % after]
        assert got == expected


def test_a_state_goes_on_in_another_process(dataset, epochs, script):
    loader = make(dataset)
    take(loader, 5)
    run = script(
        """
        import json, sys
        import headrace.torch as hr
        ranks = [hr.DataLoader(sys.argv[1], 6, True, return_index=True, rank=rank, world_size=2,
                               transform=[hr.RandomResizedCrop(16)], last_batch="partial") for rank in range(2)]
        for loader in ranks:
            loader.load_state_dict(json.loads(sys.argv[2]))
        rest = [i for step in zip(*ranks) for *_, index in step for i in index.tolist()]
        print(json.dumps([rest, ranks[0].epoch]))
        """,
        dataset,
        json.dumps(loader.state_dict()),
    )
    rest, epoch = json.loads(run.finish())
    assert rest == epochs[0][50:]


def test_torch_save_keeps_a_state(dataset, tmp_path):
    loader = make(dataset)
    take(loader, 2)
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == loader.state_dict()


def test_another_seed_or_dataset_is_refused(dataset, pack, image_folder, tmp_path):
    state = make(dataset).state_dict()
    with pytest.raises(ValueError, match="seed"):
        make(dataset, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="shuffle"):
        make(dataset, shuffle=False).load_state_dict(state)
    (tmp_path / "other" / "a").mkdir(parents=True)
    path = next(image_folder.glob("*/*.jpg"))
    (tmp_path / "other" / "a" / "x.jpg").write_bytes(path.read_bytes())
    other = make(pack(tmp_path / "other", tmp_path / "packed"), 1)
    with pytest.raises(hr.DatasetChangedError):
        other.load_state_dict(state)


def test_blocks_shuffle_is_an_order_of_its_own_and_resumes(dataset):
    order = samples(make(dataset, shuffle="blocks"))
    assert sorted(order) == list(range(131)) and order != list(range(131))
    loader = make(dataset, shuffle="blocks")
    take(loader, 3)
    resumed = make(dataset, shuffle="blocks")
    resumed.load_state_dict(loader.state_dict())
    assert samples(resumed) == order[30:]
