"""A GPU for machines that have none: headrace/_gpu.py's calls, with copies that run when the test says."""

import collections
import ctypes

import torch

from headrace import _gpu


UUID = "f" * 32  # of no GPU that a daemon may find


def mapped(address):
    """The mapping of this process that the address lies in, or ""."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(x, 16) for x in line.split(" ", 1)[0].split("-"))
            if first <= address < last:
                return line
    return ""


class FakeSlot:
    given_back = False

    def __init__(self, sources):
        self.sources = sources


class FakeGpu:
    """`automatic`: a copy runs when somebody has asked for its slot once, or its batch is delivered. Otherwise with run() only.

    A copy reads the slot when it runs, not when it is started, so a slot that was given back too early shows.
    """

    made = []  # of this test

    def __init__(self, device):
        self.device, self.automatic = device, True
        self.queue = collections.deque()  # (address, size in bytes, copy) of a field, or a slot behind its fields
        self.pinned, self.unpinned = {}, []
        self.calls = self.most_queued = 0
        FakeGpu.made.append(self)

    def numa_node(self):
        return 0

    def uuid(self):
        return UUID

    def slot(self, sources, from_gpu, is_pinned=True):
        assert not any(from_gpu), "a daemon has memory of a GPU that is not there"
        return FakeSlot(sources)

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

    def copy(self, fields, length, slot):
        self.calls += 1
        copies = [torch.empty_strided((length, *field.shape), field.strides, dtype=field.dtype) for field in fields]
        if slot is None:
            assert length == 0
            return copies
        for field, source, copy in zip(fields, slot.sources, copies):
            size = length * field.sample_bytes
            inside = [pin for pin, pinned in self.pinned.items() if pin <= source and source + size <= pin + pinned]
            assert len(inside) == 1, "a copy reads from one pinned slot"
            self.queue.append((source, size, copy))
        self.queue.append(slot)
        self.most_queued = max(self.most_queued, self.num_queued())
        return copies

    def num_queued(self):
        """Batches whose copies have not run."""
        return sum(isinstance(job, FakeSlot) for job in self.queue)

    def has_copied(self, slot):
        if slot not in self.queue:
            return True
        if self.automatic:
            self.run(1)  # and the next time it is seen
        return False

    def run(self, batches=None):
        """Runs the copies of the oldest batches (all)."""
        while self.queue and batches != 0:
            job = self.queue.popleft()
            if isinstance(job, FakeSlot):
                batches = None if batches is None else batches - 1
                continue
            address, size, copy = job
            assert copy.untyped_storage().nbytes() == size
            ctypes.memmove(copy.data_ptr(), address, size)

    def is_idle(self, wait):
        if wait:
            self.run()
        return not self.queue

    def deliver(self, copies, slot):
        """The caller is going to look at them: their turn has come, unless the test holds the GPU."""
        self.calls += 1
        while self.automatic and slot in self.queue:
            self.run(1)


def install(replace=setattr):
    """headrace.torch.DataLoader(device="cuda") uses fake GPUs from now on. The list of them, as they are made."""
    FakeGpu.made = []
    replace(_gpu, "Gpu", FakeGpu)
    replace(torch.cuda, "device_count", lambda: 2)
    return FakeGpu.made
