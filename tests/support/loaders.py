"""What tests of several loaders share."""

import torch


def session_of(loader):
    """What the daemon knows of the loader's session."""
    return next(s for s in loader._link.request(4, {})["sessions"] if s["id"] == loader._session.id)


def same(batches, expected):
    """Whether two lists of batches hold the same, wherever their tensors are."""
    assert len(batches) == len(expected)
    for number, (batch, other) in enumerate(zip(batches, expected)):
        assert len(batch) == len(other)
        for mine, theirs in zip(batch, other):
            equal = torch.equal(mine.cpu(), theirs.cpu()) if isinstance(mine, torch.Tensor) else mine == theirs
            assert equal, f"batch {number} differs"
    return True


def samples(batches):
    """The sample numbers of batches made with return_index=True."""
    return [i for *_, index in batches for i in index.tolist()]
