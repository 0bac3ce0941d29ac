"""Epochs, positions and states as plain arithmetic, without a daemon."""

import json

import pytest

from headrace import DatasetChangedError, InvalidArgumentError
from headrace._progress import Progress, Steps, make_state, read_state

IDENTITY = {"dataset": "ab", "size": 10, "seed": 3, "shuffle": True, "order_version": 1}


def run(progress, count):
    """Hands out `count` steps of a new iteration, or all."""
    progress.begin()
    while progress.steps_left and count:
        progress.advance()
        count -= 1


@pytest.mark.parametrize("drop", [False, True])
def test_steps_cover_an_epoch_exactly(drop):
    for size in (1, 5, 8, 9, 24):
        for batch in (1, 3, 8):
            for world in (1, 2, 3):
                steps = Steps(size, batch, world, drop)
                full, rest = divmod(size, batch * world)
                assert steps.left(0) == full + (rest > 0 and not drop)
                progress = Progress(steps)
                progress.begin()
                while progress.steps_left:
                    assert steps.left(progress.position) == progress.steps_left
                    progress.advance()
                assert progress.position == (size if steps.left(0) else 0)


def test_a_new_loader_stands_at_the_beginning_and_counts_epochs():
    progress = Progress(Steps(10, 4, 1, False))
    assert (progress.epoch, progress.position) == (0, 0)
    for epoch in range(3):
        run(progress, 99)
        assert (progress.epoch, progress.position) == (epoch, 10)  # behind its last batch
        progress.finish()
        assert (progress.epoch, progress.position) == (epoch + 1, 0)


def test_drop_ends_an_epoch_at_its_size_too():
    progress = Progress(Steps(10, 4, 1, True))
    run(progress, 99)
    assert (progress.epoch, progress.position) == (0, 10)


def test_a_second_iteration_is_the_next_epoch_even_if_the_first_was_broken_off():
    progress = Progress(Steps(10, 4, 1, False))
    run(progress, 1)
    assert (progress.epoch, progress.position) == (0, 4)
    progress.begin()
    assert (progress.epoch, progress.position) == (1, 0)


def test_set_epoch_says_where_the_next_iteration_begins():
    progress = Progress(Steps(10, 4, 1, False))
    progress.set_epoch(7, False)
    assert (progress.epoch, progress.position) == (7, 0)
    run(progress, 1)
    assert progress.epoch == 7
    progress.set_epoch(2, False)  # broken off: nobody can go on with it
    assert (progress.epoch, progress.position) == (2, 0)


def test_set_epoch_leaves_a_living_iteration_alone():
    progress = Progress(Steps(10, 4, 1, False))
    run(progress, 1)
    progress.set_epoch(5, True)
    assert (progress.epoch, progress.position) == (0, 4)
    progress.advance()
    assert (progress.epoch, progress.position) == (0, 8)
    progress.finish()
    assert (progress.epoch, progress.position) == (5, 0)


def test_a_loaded_position_is_kept_by_set_epoch_of_the_same_epoch_only():
    progress = Progress(Steps(10, 4, 1, False))
    progress.load(3, 4)
    progress.set_epoch(3, False)
    assert (progress.epoch, progress.position) == (3, 4)
    progress.set_epoch(4, False)
    assert (progress.epoch, progress.position) == (4, 0)
    progress.set_epoch(3, False)
    assert (progress.epoch, progress.position) == (3, 4)
    run(progress, 99)
    progress.finish()
    progress.set_epoch(3, False)  # the state was used up
    assert (progress.epoch, progress.position) == (3, 0)


def test_steps_of_a_loaded_state_are_counted_from_its_position():
    progress = Progress(Steps(10, 2, 2, False))
    progress.load(1, 6)
    progress.begin()
    assert progress.steps_left == 1
    assert progress.audit_start(None) == progress.audit_start(1) == (1, 6)
    assert progress.audit_start(2) == (2, 0)


def test_a_state_behind_the_last_batch_gives_an_empty_rest_and_goes_on():
    progress = Progress(Steps(10, 4, 1, False))
    progress.load(2, 10)
    progress.begin()
    assert (progress.steps_left, progress.epoch) == (0, 2)
    progress.finish()
    assert (progress.epoch, progress.position) == (3, 0)


def test_audit_counts_from_the_running_or_last_iteration_else_from_the_next():
    progress = Progress(Steps(10, 4, 1, False))
    progress.set_epoch(4, False)
    assert progress.audit_start(None) == (4, 0)
    run(progress, 2)
    progress.finish()
    assert progress.epoch == 5
    assert progress.audit_start(None) == (4, 0)


def test_a_state_is_plain_data_and_comes_back():
    progress = Progress(Steps(10, 4, 1, False))
    run(progress, 2)
    state = json.loads(json.dumps(make_state(progress, IDENTITY)))
    assert read_state(state, IDENTITY) == (0, 8)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"seed": 4}, InvalidArgumentError),
        ({"shuffle": False}, InvalidArgumentError),
        ({"order_version": 2}, InvalidArgumentError),
        ({"dataset": "cd"}, DatasetChangedError),
        ({"version": 99}, InvalidArgumentError),
        ({"position": 11}, InvalidArgumentError),
        ({"epoch": -1}, InvalidArgumentError),
        ({"position": "x"}, InvalidArgumentError),
    ],
)
def test_a_state_of_another_order_is_refused_and_says_why(change, error):
    state = {**make_state(Progress(Steps(10, 4, 1, False)), IDENTITY), **change}
    with pytest.raises(error):
        read_state(state, IDENTITY)


def test_something_that_is_no_state_is_refused():
    with pytest.raises(InvalidArgumentError, match="no state"):
        read_state({"model": 1}, IDENTITY)
