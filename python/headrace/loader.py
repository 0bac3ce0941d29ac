"""`Loader`: batches as numpy arrays. Also the base of headrace.torch.DataLoader. Described in docs/python.md."""

import os
import threading
import time
import warnings
import weakref

from headrace import _arguments, _connection, _job, _library, _text, errors
from headrace._progress import Progress, Steps, make_state, read_state
from headrace._session import Session
from headrace.dataset import Dataset


class Loader:
    """Iterates over the batches of a dataset made by `headrace pack`; each iteration is the next epoch.

    Arguments:
        dataset: path of the packed dataset.
        batch_size: samples per rank and step.
        shuffle: True draws a new permutation each epoch from `seed`, the same in every run; "blocks" is for datasets far
            larger than memory.
        transform: list of headrace's or torchvision's transforms (a Compose too); outputs must have one shape.
        drop_last, last_batch: what becomes of an incomplete last batch: "partial" (with one rank the default), "pad" as
            DistributedSampler does (with several), "drop".
        seed: of the order and of everything that is drawn.
        dtype: of images: "float32", "float16", "uint8" (without Normalize).
        memory_format: "contiguous" or "channels_last".
        fields: columns of a batch in their order; by default image and label. return_index appends the samples' numbers.
        rank, world_size: torch.distributed's where it is initialised.
        num_workers: how many of the daemon's threads may work for this loader; None or 0: all.
        prefetch_factor: batches that are ready ahead.
        timeout: seconds that any wait may take.
        on_bad_sample: "fail" raises BadSampleError, "skip" leaves the sample out, "substitute" takes another one.
        max_bad: different bad samples that "skip" and "substitute" may pass over; one more raises BadSampleError.
        engine: who decodes: "cpu", "gpu" (with headrace.torch.DataLoader's device="cuda") or "auto".
        socket: path or "@name" of a daemon; by default the node's, or a private one.

    Yields a tuple of arrays per step: images (N, C, H, W), then the other `fields`; text as a list of str. Raises
    HeadraceError's subclasses, which are also the built-in classes that fit (docs/python.md, "Errors").

    Threads may share a loader and an iterator: calls take turns, each batch goes to one of them.
    """

    _device = None  # a GPU that batches go to

    def __init__(self, dataset, batch_size=1, shuffle=False, *, transform=None, drop_last=False, last_batch=None, seed=0,
                 dtype="float32", memory_format="contiguous", fields=None, return_index=False, rank=None, world_size=None,
                 num_workers=None, prefetch_factor=2, timeout=60, on_bad_sample="fail", max_bad=None,
                 engine="auto", socket=None, **pytorch):  # fmt: skip
        _arguments.check_foreign(pytorch, type(self))
        if engine == "gpu" and self._device is None:
            raise errors.InvalidArgumentError(
                'engine="gpu" makes batches in GPU memory: use headrace.torch.DataLoader with device="cuda"'
            )
        rank, world_size = _job.rank_and_world_size(rank, world_size)
        self._arguments = dict(dataset=dataset, batch_size=batch_size, shuffle=shuffle, transform=transform,
                               drop_last=drop_last, last_batch=last_batch, seed=seed, dtype=dtype,
                               memory_format=memory_format, fields=fields, return_index=return_index, rank=rank,
                               world_size=world_size, num_workers=num_workers, prefetch_factor=prefetch_factor,
                               timeout=timeout, on_bad_sample=on_bad_sample, max_bad=max_bad, engine=engine,
                               socket=socket)  # fmt: skip
        self._timeout = _arguments.seconds(timeout)
        self._timeout_ms = max(1, round(self._timeout * 1000))
        self._path = _arguments.dataset_path(dataset)
        self._socket = None if socket is None else os.fspath(socket)
        self._spec = _arguments.make_spec(
            self._path, transform=transform, dtype=self._dtype_name(dtype),
            memory_format=_arguments.format_name(memory_format), fields=fields, batch_size=batch_size, rank=rank,
            world_size=world_size, shuffle=shuffle, seed=seed,
            last_batch=_arguments.last_batch_policy(last_batch, drop_last, world_size), on_bad_sample=on_bad_sample,
            max_bad=max_bad, num_workers=num_workers, prefetch_factor=prefetch_factor, engine=engine)  # fmt: skip
        self.batch_size, self.drop_last = self._spec["batch_size"], self._spec["last_batch"] == "drop"
        self.num_workers, self.prefetch_factor = num_workers or 0, self._spec["prefetch_factor"]
        self.timeout, self.pin_memory = timeout, False
        self.rank, self.world_size = rank, world_size
        self._return_index = bool(return_index)
        if self._spec["fields"] == [] and not self._return_index:
            raise errors.InvalidArgumentError("fields=[] and no return_index leave nothing to load")
        self._session = self._iteration = self._closed = None
        self._timing = _Timing()
        self._meet_daemon()

    def _meet_daemon(self):
        """Connects, learns what the dataset holds, and lets the daemon check the spec, so that errors come here."""
        self._generation, self._lock = _library.generation, threading.Lock()
        self._link = _connection.Link(self._socket, self._path, self._timeout)
        self.dataset = Dataset(self._link)
        _job.compare_dataset(self.dataset.path, self.dataset.hash)
        if self._spec["fields"] is None:
            self._spec["fields"] = [name for name in ("image", "label") if name in self.dataset.fields]
        self._steps = Steps(len(self.dataset), self.batch_size, self.world_size, self.drop_last)
        self._progress = Progress(self._steps)
        self.sampler = _Sampler(self)
        probe = {"spec": {**self._spec, "batch_size": 1}, "epoch": 0, "position": 0, "step": 0}
        if not self._steps.left(0):
            warnings.warn(f"{self!r} has no step: the dataset's {len(self.dataset)} samples make no batch", stacklevel=4)
            return
        try:
            self._link.request(_library.AUDIT, probe)
        except errors.DataLossError:
            pass  # the first sample is damaged, the spec is not: on_bad_sample decides

    # What a subclass does otherwise.

    def _dtype_name(self, dtype):
        name = _arguments.dtype_name(dtype)
        if name == "bfloat16":
            raise errors.InvalidArgumentError("numpy has no bfloat16: use headrace.torch.DataLoader, or float16")
        return name

    def _open_session(self, *arguments):
        return Session(*arguments)

    def _converter(self, field):
        """A function (DLPack capsule, address of its DLManagedTensor) → what users get of this field."""
        from headrace import _numpy

        return _numpy.converter(field)

    # Iterating.

    def __len__(self):
        """Steps of a whole epoch; the same on all ranks."""
        return self._steps.left(0)

    def __iter__(self):
        self._check_process()
        with self._lock:
            self._check_open()
            self._end_iteration("iter() was called again")
            self._progress.begin()
            self._align()
            iteration = _Iteration(self)
            self._iteration = weakref.ref(iteration, self._timing.end)
            self._timing.begin()
            return iteration

    def _next_batch(self, iteration):
        """Nothing in here that a ready batch does not need: the trainer's GPU may have run out of work."""
        if self._generation != _library.generation:
            self._check_process()
        with self._lock:
            try:
                progress, session, timing = self._progress, self._session, self._timing
                if self._closed or iteration.ended is not None or not progress.steps_left:
                    self._stop(iteration)
                values = session and session.take()
                if not values or session.batch.position != progress.position or session.batch.epoch != progress.epoch:
                    values = self._wait_for_batch()
                    session = self._session
                batch = session.batch
                if self._convert is not None:
                    values = self._convert(values, session.addresses)
                progress.advance()
                timing.batches += 1
                timing.samples += batch.length
                timing.bad_samples += batch.bad_samples
                return values
            finally:
                if self._closed:  # meanwhile, by another thread
                    self._drop_session()

    def _stop(self, iteration):
        self._check_open()
        if iteration.ended is None:
            iteration.ended = ""
            self._progress.finish()
            self._timing.end()
        if iteration.ended:
            raise errors.HeadraceError(f"this iteration has ended: {iteration.ended}")
        raise StopIteration

    def _wait_for_batch(self):
        """The values of the batch at our cursor, which is not ready, or not what the session would give next."""
        began = time.perf_counter_ns()
        progress = self._progress
        try:
            for _ in range(2):
                self._align()
                session = self._session
                values, batch = session.next(self._timeout_ms), session.batch
                if batch.position == progress.position and batch.epoch == progress.epoch:
                    return values
                # Ctrl-C came before a batch was handed out, so the session is a step ahead: _align seeks back.
        except errors.BadSampleError:
            progress.advance()
            self._session.cursor = (progress.epoch, progress.position)
            self._timing.batches += 1
            self._timing.bad_samples += 1
            raise
        finally:
            self._timing.waited_ns += time.perf_counter_ns() - began
        raise errors.DaemonError(
            f"the daemon sent epoch {batch.epoch}, position {batch.position} instead of {progress.epoch}, {progress.position}"
        )

    def _align(self):
        """Makes the session's next batch ours: opens it, or seeks if it stands elsewhere."""
        session, progress = self._session, self._progress
        here = (progress.epoch, progress.position)
        if len(self) == 0:
            return
        target = self._steps.normalized(*here)
        if session is None:
            session = self._open_session(
                self._link.connection(), self._spec, self.dataset.hash, *target, self._timeout, self._return_index
            )
            self._convert = self._batch_converter(session.fields[: session.num_wanted], session)
            self._session = session
        elif self._steps.normalized(*session.cursor) != target:
            session.seek(*target, self._timeout)

    def _batch_converter(self, fields, session):
        """A function (DLPack capsules, addresses of their DLManagedTensors) → what users get of a batch; None if the session
        gives that."""
        text = [_text.converter(field, session.batch) if field.dtype == "text" else None for field in fields]
        converters = [convert or self._converter(field) for field, convert in zip(fields, text)]
        return lambda capsules, addresses: tuple([convert(capsules[i], addresses[i]) for i, convert in enumerate(converters)])

    def _drop_session(self):
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # Epochs and state.

    @property
    def epoch(self):
        """The epoch of the running iteration, or of the next one when none runs."""
        return self._progress.epoch

    def set_epoch(self, epoch):
        """Sets the epoch of the next iteration. The running one is not touched."""
        epoch = _arguments.whole(epoch, "epoch", 0, 2**63 - 1)
        with self._lock:
            self._progress.set_epoch(epoch, self._iteration is not None and self._iteration() is not None)

    def _identity(self):
        """What a position means nothing without."""
        return {
            "dataset": self.dataset.hash,
            "size": len(self.dataset),
            "seed": self._spec["seed"],
            "shuffle": self._spec["shuffle"],
            "order_version": self.dataset.order_version,
        }

    def state_dict(self):
        """The position after the last batch handed out, counted in samples of all ranks: numbers and strings only."""
        return make_state(self._progress, self._identity())

    def load_state_dict(self, state):
        """The next iteration goes on where the state was taken, also on another number of ranks."""
        epoch, position = read_state(state, self._identity())
        with self._lock:
            self._end_iteration("a state was loaded")
            self._progress.load(epoch, position)

    def _end_iteration(self, reason):
        self._timing.end()
        iteration = self._iteration and self._iteration()
        if iteration is not None and iteration.ended is None:
            iteration.ended = reason

    # Looking.

    def audit(self, step, epoch=None):
        """What was drawn for each sample of this rank's step: dicts with sample, name, label, shard, crop, flip, …

        `step` counts from where the running (or last) iteration began, as enumerate(loader) does; with another `epoch`
        from that epoch's beginning.
        """
        start = self._progress.audit_start(epoch)
        step = _arguments.whole(step, "step", 0, 2**62)
        if step >= self._steps.left(start[1]):
            raise IndexError(f"epoch {start[0]} has {self._steps.left(start[1])} steps from position {start[1]}, not {step}")
        request = {"spec": self._spec, "epoch": start[0], "position": start[1], "step": step}
        rows = self._link.request(_library.AUDIT, request)
        return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows]

    def stats(self):
        """Counters of this loader since it was made; see docs/python.md."""
        return self._timing.stats(self._session, self._link.request(_library.STATS, {}))

    def _check_open(self):
        if self._closed:
            raise errors.HeadraceError("this loader is closed")

    def _check_process(self):
        """In a forked child: forgets the parent's session; one of its own follows with its first batch."""
        if self._generation != _library.generation:
            self._generation, self._lock = _library.generation, threading.Lock()
            self._session = None

    # Ending.

    def close(self):
        """Ends the session. Batches handed out stay. A thread that waits in next() at the moment ends it on its return."""
        self._closed = True
        if self._generation == _library.generation and self._lock.acquire(blocking=False):
            try:
                self._drop_session()
            finally:
                self._lock.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        return _remake, (type(self), self._arguments)

    def __repr__(self):
        spec = self._spec
        parts = [repr(self._path), f"batch_size={spec['batch_size']}", f"shuffle={spec['shuffle']!r}"]
        return f"{type(self).__name__}({', '.join(parts)}, rank {self.rank} of {self.world_size})"


def _remake(cls, arguments):
    return cls(**arguments)


class _Iteration:
    """One pass over an epoch. `ended`: None while it runs, "" at its end, else why it cannot go on."""

    def __init__(self, loader):
        self._loader, self.ended = loader, None

    def __iter__(self):
        return self

    def __next__(self):
        return self._loader._next_batch(self)


class _Sampler:
    """`loader.sampler`: scripts written for DistributedSampler call its set_epoch."""

    def __init__(self, loader):
        self._loader = weakref.ref(loader)
        self._size = len(loader.dataset)

    def set_epoch(self, epoch):
        loader = self._loader()
        if loader is not None:
            loader.set_epoch(epoch)

    def __len__(self):
        return self._size


class _Timing:
    """Where a trainer's time goes while it iterates."""

    def __init__(self):
        self.samples = self.bad_samples = self.batches = 0
        self.waited_ns = 0  # for batches that were not ready
        self._iterated_ns, self._began = 0, None

    def begin(self):
        self.end()
        self._began = time.perf_counter_ns()

    def end(self, _=None):
        began, self._began = self._began, None
        if began is not None:
            self._iterated_ns += time.perf_counter_ns() - began

    def stats(self, session, daemon):
        running_ns = 0 if self._began is None else time.perf_counter_ns() - self._began
        iterated_ns = self._iterated_ns + running_ns
        return {
            "batches": self.batches,
            "samples": self.samples,
            "bad_samples": self.bad_samples,
            "waited_seconds": self.waited_ns / 1e9,
            "between_calls_seconds": (iterated_ns - self.waited_ns) / 1e9,
            "samples_per_second": self.samples * 1e9 / iterated_ns if iterated_ns else 0.0,
            "engine": "gpu" if session is not None and session.on_gpu else "cpu",
            "simd_target": daemon["simd_target"],
            "threads": daemon["decode_threads"],
            "threads_in_use": daemon.get("threads_in_use"),
            "cpu_seconds_per_1000": 1000 * daemon["cpu_seconds"] / max(1, daemon["samples"]),
            "daemon_pid": daemon["pid"],
            **({} if session is None else session.stats_of_ring()),
        }
