"""Where a loader stands: epochs, positions, the state that goes into a checkpoint. Plain arithmetic (core/batch/order.h)."""

import operator

from headrace.errors import DatasetChangedError, InvalidArgumentError

STATE_VERSION = 1


class Steps:
    """How an epoch of `size` samples is cut into steps of batch_size samples on each of world_size ranks."""

    def __init__(self, size, batch_size, world_size, drop):
        self.size, self.global_batch, self._drop = size, batch_size * world_size, drop

    def left(self, position):
        """Steps from a position to the end of its epoch."""
        remaining = max(0, self.size - position)
        return remaining // self.global_batch if self._drop else -(-remaining // self.global_batch)

    def normalized(self, epoch, position):
        """Where the next batch really starts: in the next epoch if this one has no step left."""
        return (epoch, position) if self.left(position) else (epoch + 1, 0)


class Progress:
    """The cursor of a loader and the rules of docs/python.md, "Epochs and state".

    `epoch`, `position`: behind the last batch handed out while an iteration runs, else where the next one starts.
    """

    def __init__(self, steps):
        self._steps, self._global_batch = steps, steps.global_batch
        self.running = False
        self.epoch = self.position = 0
        self.start = None  # where the running or last iteration began
        self.steps_left = 0
        self._pending = None  # where set_epoch wants the next iteration while one runs
        self._loaded = None  # until an iteration begins

    def begin(self):
        """A new iteration; ends a running one."""
        self.finish()
        self.running, self._loaded = True, None
        self.start = (self.epoch, self.position)
        self.steps_left = self._steps.left(self.position)

    def advance(self):
        """A step has been handed out."""
        self.position += self._global_batch
        self.steps_left -= 1
        if self.steps_left == 0:
            self.position = self._steps.size  # behind a short last batch, and behind what "drop" leaves

    def finish(self):
        """The iteration has ended: the next one is the next epoch unless set_epoch said otherwise."""
        if self.running:
            self.epoch, self.position = self._pending or (self.epoch + 1, 0)
            self.running, self._pending = False, None

    def set_epoch(self, epoch, iteration_alive):
        """`iteration_alive`: whether somebody can still go on with the running iteration; after `break` nobody can."""
        cursor = self._loaded if self._loaded and self._loaded[0] == epoch else (epoch, 0)
        if self.running and iteration_alive:
            self._pending = cursor
            return
        self.running, self._pending = False, None
        self.epoch, self.position = cursor

    def load(self, epoch, position):
        self.running, self._pending = False, None
        self.epoch, self.position = self._loaded = (epoch, position)
        self.start = None

    def audit_start(self, epoch):
        """The cursor from which audit counts steps of this epoch (None: of the running or last iteration, before the
        first one of the next)."""
        start = self.start or (self.epoch, self.position)
        if epoch is None or epoch == start[0]:
            return start
        return (epoch, 0)


def make_state(progress, identity):
    return {"version": STATE_VERSION, "epoch": progress.epoch, "position": progress.position, **identity}


def read_state(state, identity):
    """(epoch, position) of a state, after checking that it belongs to the same order of the same samples."""
    try:
        version = state["version"]
        epoch, position = operator.index(state["epoch"]), operator.index(state["position"])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgumentError(f"this is no state of a headrace loader: {state!r}") from None
    if version != STATE_VERSION:
        raise InvalidArgumentError(f"the state has version {version}, this build reads {STATE_VERSION}")
    for key, mine in identity.items():
        if state.get(key) != mine:
            error = DatasetChangedError if key in ("dataset", "size") else InvalidArgumentError
            raise error(f"the state was made with {key}={state.get(key)!r}, this loader has {key}={mine!r}")
    if epoch < 0 or not 0 <= position <= identity["size"]:
        raise InvalidArgumentError(f"the state's position {position} of epoch {epoch} is not in this dataset")
    return epoch, position
