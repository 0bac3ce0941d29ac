"""device="cuda" and processes: who initialises CUDA when, forks, deaths, exits, jobs of several ranks."""

import json
import os
import signal

import pytest
import torch
from processes import wait_until

import headrace.torch as hr

if not torch.cuda.is_available():
    pytest.skip("no GPU: torch.cuda.is_available() is False", allow_module_level=True)

TRAINER = """
import gc, json, os, sys, time
import torch
import headrace.torch as hr

def make(batch_size=8, **arguments):
    arguments = {"transform": [hr.RandomResizedCrop(224)], "return_index": True, "shuffle": True, "device": "cuda", **arguments}
    arguments["engine"] = "cpu" if arguments["device"] == "cpu" else os.environ["ENGINE"]
    return hr.DataLoader(sys.argv[1], batch_size, **arguments)

def samples(batches):
    return [i for *_, index in batches for i in index.tolist()]
"""


@pytest.fixture(autouse=True, params=["cpu", "gpu"])
def engine(request, monkeypatch):
    """Who makes the batches that come to the GPU: every test here runs with both."""
    monkeypatch.setenv("ENGINE", request.param)
    return request.param


@pytest.mark.parametrize("initialised", ["before", "by the loader"])
def test_cuda_is_initialised_with_the_first_batch_or_by_others_before(dataset, script, initialised):
    run = script(
        TRAINER
        + """
if sys.argv[2] == "before":
    torch.zeros(1, device="cuda")
cpu = list(make(device="cpu"))
loader = make()
assert torch.cuda.is_initialized() == (sys.argv[2] == "before")
batches = list(loader)
assert torch.cuda.is_initialized()
weights = torch.ones(3, device="cuda")
for (images, labels, index), (other, *_) in zip(batches, cpu):
    assert torch.equal(images.cpu(), other)
    (images.mean((0, 2, 3)) * weights).sum().item()
print("done")
""",
        dataset,
        initialised,
    )
    assert run.finish() == "done\n"


def test_cuda_visible_devices_is_respected(dataset, script):
    last = torch.cuda.device_count() - 1
    run = script(
        TRAINER
        + """
assert torch.cuda.device_count() == 1
for device in ("cuda", "cuda:0"):
    assert all(images.device.index == 0 for images, *_ in make(device=device))
try:
    make(device="cuda:1")
except hr.InvalidArgumentError as error:
    print(error)
""",
        dataset,
        env={"CUDA_VISIBLE_DEVICES": str(last)},
    )
    assert "1 GPU" in run.finish()


def test_a_child_forked_before_cuda_was_initialised_has_a_gpu_loader_of_its_own(dataset, script):
    run = script(
        TRAINER
        + """
loader = make()
pid = os.fork()
assert sorted(samples(loader)) == list(range(131))
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


def test_children_forked_afterwards_are_told_and_disturb_nothing(dataset, script):
    run = script(
        TRAINER
        + """
expected = [images for images, *_ in make(device="cpu")]
loader = make()
iterator, got = iter(loader), []
assert torch.equal(next(iterator)[0].cpu(), expected.pop(0))
for step in range(3):
    pid = os.fork()
    if pid == 0:
        try:
            next(iterator)
        except hr.UnsupportedError as error:
            assert "fork" in str(error), error
            if step == 0:
                sys.exit(0)                            # its parent's loader ends with it
            del iterator, loader
            gc.collect()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, step
    got.append(next(iterator))
other = torch.utils.data.DataLoader(list(range(20)), batch_size=5, num_workers=2)
for mine, theirs in zip(iterator, other):              # forks workers in the middle of the epoch
    got.append(mine)
got += list(iterator)
assert len(got) >= len(expected) - 1                   # zip takes one batch that it drops
for images, *_ in got[:6]:
    assert torch.equal(images.cpu(), expected.pop(0))
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


ENDINGS = ["pass", "keep = list(loader)", "raise SystemExit", "os.abort = b; sys.modules['kept'] = loader"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_cleanly_whatever_it_still_holds(dataset, script, ending):
    held = "\nloader = make()\nit = iter(loader); b = next(it)\ncycle = [b, it]; cycle.append(cycle)\n"
    run = script(TRAINER + held + ending, dataset)
    out, err = run.process.communicate(timeout=180)
    assert (run.process.returncode, out, err) == (0, "", "")


def test_a_killed_trainer_leaves_nothing(dataset, start_daemon, script):
    daemon = start_daemon(os.path.dirname(dataset))
    with hr.DataLoader(dataset, 4, transform=[hr.Resize((8, 8))], socket=daemon.socket) as observer:
        stats = lambda: observer._link.request(4, {})  # noqa: E731
        used = stats()["host_memory_used"]
        run = script(
            TRAINER + "\nfor images, *_ in make(32):\n    print(images.shape, flush=True)\n    time.sleep(0.5)\n",
            dataset,
            env={"HEADRACE_SOCKET": daemon.socket},
        )
        run.line()
        assert len(stats()["sessions"]) == 1 and stats()["host_memory_used"] > used
        os.kill(run.pid, signal.SIGKILL)
        wait_until(lambda: stats()["sessions"] == [], 20, "the end of the session")
        wait_until(lambda: stats()["host_memory_used"] == used, 20, "the slots' memory")


def test_ranks_of_torchrun_have_a_gpu_each(dataset, script):
    ranks = min(2, torch.cuda.device_count())
    run = script(
        TRAINER
        + """
import torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("gloo")
loader = make(5, last_batch="partial")
torch.cuda.set_device(rank)
steps = []
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    steps.append([])
    for images, labels, index in loader:
        assert images.device.index == labels.device.index == rank and bool((images >= 0).all())
        steps[-1] += index.tolist()
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, (steps, loader.stats()["daemon_pid"]))
if rank == 0:
    print(json.dumps(everything))
loader.close()
dist.barrier()
dist.destroy_process_group()
""",
        dataset,
        torchrun=ranks,
    )
    everything = json.loads(run.finish(300).splitlines()[-1])
    assert len({pid for _, pid in everything}) == 1
    for epoch in range(2):
        assert sorted(i for steps, _ in everything for i in steps[epoch]) == list(range(131))
