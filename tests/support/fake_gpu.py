"""A GPU for machines that have none: what headrace/_cuda.py asks of torch.cuda, with copies that run when the test says."""

import collections
import ctypes

import torch

from headrace import _cuda


def mapped(address):
    """The mapping of this process that the address lies in, or ""."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(x, 16) for x in line.split(" ", 1)[0].split("-"))
            if first <= address < last:
                return line
    return ""


class FakeEvent:
    def __init__(self, gpu):
        self._gpu, self.passed = gpu, True

    def query(self):
        if self.passed or not self._gpu.automatic:
            return self.passed
        self._gpu.run(1)  # and the next time it is seen
        return False


class FakeGpu:
    """`automatic`: a copy runs when its event has been asked for once, or its batch is delivered. Otherwise with run() only.

    A copy reads the slot when it runs, not when it is started, so a slot that was given back too early shows.
    """

    made = []  # of this test

    def __init__(self, device):
        self.device, self.automatic = device, True
        self.queue = collections.deque()  # (address, size in bytes, copy) of a field, or an event
        self.pinned, self.unpinned = {}, []
        self.calls = self.most_queued = 0
        FakeGpu.made.append(self)

    def event(self):
        return FakeEvent(self)

    def pin(self, address, size):
        self.calls += 1
        assert "memfd:" in mapped(address) and "memfd:" in mapped(address + size - 1)
        assert self.pinned.get(address, size) == size  # a second time only after Ctrl-C came in the middle of the first
        self.pinned[address] = size
        return True

    def unpin(self, address):
        self.calls += 1
        assert "memfd:" in mapped(address), "unregistered before it is unmapped"
        size = self.pinned.pop(address)
        assert not any(address <= job[0] < address + size for job in self.queue if isinstance(job, tuple))
        self.unpinned.append(address)

    def copy(self, tensors, event):
        self.calls += 1
        copies = [torch.empty_like(tensor) for tensor in tensors]
        for tensor, copy in zip(tensors, copies):
            size = tensor.numel() * tensor.element_size()
            slots = [slot for slot, length in self.pinned.items() if slot <= tensor.data_ptr() and
                     tensor.data_ptr() + size <= slot + length]  # fmt: skip
            assert len(slots) == 1 or size == 0, "a copy reads from one pinned slot"
            self.queue.append((tensor.data_ptr(), size, copy))
        self.queue.append(event)
        event.passed = False
        self.most_queued = max(self.most_queued, sum(isinstance(job, FakeEvent) for job in self.queue))
        return copies

    def run(self, batches=None):
        """Runs the copies of the oldest batches (all)."""
        while self.queue and batches != 0:
            job = self.queue.popleft()
            if isinstance(job, FakeEvent):
                job.passed = job not in self.queue  # recorded again meanwhile: that counts
                batches = None if batches is None else batches - 1
                continue
            address, size, copy = job
            if size:
                bytes_of(copy).copy_(torch.frombuffer(memory(address, size), dtype=torch.uint8))

    def is_idle(self, wait):
        if wait:
            self.run()
        return not self.queue

    def deliver(self, copies, event):
        """The caller is going to look at them: their turn has come, unless the test holds the GPU."""
        self.calls += 1
        while self.automatic and event is not None and not event.passed:
            self.run(1)


def memory(address, size):
    return (ctypes.c_char * size).from_address(address)


def bytes_of(tensor):
    """The tensor's memory, whatever its strides."""
    return torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage())


def install(replace=setattr):
    """headrace.torch.DataLoader(device="cuda") uses fake GPUs from now on. The list of them, as they are made."""
    FakeGpu.made = []
    replace(_cuda, "Gpu", FakeGpu)
    replace(torch.cuda, "device_count", lambda: 2)
    return FakeGpu.made
