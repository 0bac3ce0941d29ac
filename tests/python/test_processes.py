"""Forked and spawned children, signals, the end of a process, jobs of torchrun."""

import json
import os
import signal
import time

import pytest
from processes import wait_until

TRAINER = """
import os, signal, sys, time
import headrace.torch as hr

def make(batch_size=8, **arguments):
    arguments = {"transform": [hr.RandomResizedCrop(16)], "return_index": True, "shuffle": True, **arguments}
    return hr.DataLoader(sys.argv[1], batch_size, **arguments)

def samples(batches):
    return [i for *_, index in batches for i in index.tolist()]
"""


def test_a_forked_child_iterates_on_its_own_and_the_parent_goes_on(dataset, script):
    run = script(
        TRAINER
        + """
loader = make()
iterator = iter(loader)
first = [next(iterator) for _ in range(3)]
kept = [images.clone() for images, *_ in first]
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    status = 1
    try:
        rest = samples(iterator)                       # goes on where the parent stood
        assert sorted(samples(first) + rest) == list(range(131))
        assert sorted(samples(loader)) == list(range(131))
        assert len(loader.dataset[3][0]) > 100
        del first                                      # the parent's batches: nothing happens to its slots
        status = 0
    finally:
        os._exit(status)
rest = samples(iterator)
assert os.waitpid(pid, 0)[1] == 0
assert sorted(samples(first) + rest) == list(range(131))
assert all((images == copy).all() for (images, *_), copy in zip(first, kept))
assert sorted(samples(loader)) == list(range(131))
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


def test_children_that_end_by_sys_exit_do_not_disturb_the_parents_batches(dataset, script):
    run = script(
        TRAINER
        + """
loader = make(8, transform=[hr.Resize((96, 96))], shuffle=False)
expected = [images.clone() for images, *_ in loader]
iterator = iter(loader)
kept = []
for i in range(8):
    kept.append(next(iterator)[0])
    pid = os.fork()
    if pid == 0:
        sys.exit(0)                                    # runs the deleters of the parent's batches
    assert os.waitpid(pid, 0)[1] == 0
for rest in iterator:
    kept.append(rest[0])
assert all((images == copy).all() for images, copy in zip(kept, expected))
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_loader_goes_to_children_of_multiprocessing(dataset, script, method):
    run = script(
        TRAINER
        + """
import multiprocessing

def child(loader, queue):
    queue.put(samples(loader))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    loaders = [make(rank=rank, world_size=2, last_batch="partial") for rank in range(2)]
    queue = context.Queue()
    children = [context.Process(target=child, args=(loader, queue)) for loader in loaders]
    for process in children:
        process.start()
    got = sum((queue.get(timeout=120) for _ in children), [])
    for process in children:
        process.join()
    assert sorted(got) == list(range(131)), got
    assert sorted(sum((samples(loader) for loader in loaders), [])) == list(range(131))
    print("done")
""",
        dataset,
        method,
    )
    assert run.finish() == "done\n"


def test_a_torch_dataloader_with_workers_works_beside(dataset, script):
    run = script(
        TRAINER
        + """
import torch
loader = make()
other = torch.utils.data.DataLoader(list(range(20)), batch_size=5, num_workers=2)
for mine, theirs in zip(loader, other):
    assert len(theirs) == 5
assert sorted(samples(loader)) == list(range(131))
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


STALLED = (  # a trainer whose daemon has fallen asleep, so that it waits
    TRAINER
    + """
loader = make(4)
iterator = iter(loader)
next(iterator)
daemon = loader.stats()["daemon_pid"]
os.kill(daemon, signal.SIGSTOP)
"""
)


def test_ctrl_c_leaves_a_wait_at_once(dataset, script):
    run = script(
        STALLED
        + """
print("waiting", flush=True)
try:
    list(iterator)
except KeyboardInterrupt:
    print(time.time(), flush=True)
os.kill(daemon, signal.SIGKILL)
""",
        dataset,
    )
    assert run.line() == "waiting"
    time.sleep(0.7)
    sent = time.time()
    os.kill(run.pid, signal.SIGINT)
    assert float(run.line()) - sent < 1.0
    run.finish()


def test_after_ctrl_c_the_loop_goes_on_without_a_gap_and_no_slot_is_lost(dataset, script):
    run = script(
        TRAINER
        + """
import json, threading

class Interrupting(threading.Thread):
    def run(self):
        for _ in range(150):
            time.sleep(0.0015)
            os.kill(os.getpid(), signal.SIGINT)

loader = make(4, transform=[hr.RandomResizedCrop(96)])
positions, interrupts, epochs = [], 0, 0
thread = Interrupting()
thread.start()
iterator = None
while thread.is_alive() or epochs < 2:
    try:
        if iterator is None:
            iterator = iter(loader)
        before = loader.state_dict()["position"]
        batch = next(iterator, None)
        if batch is None:
            iterator, epochs = None, epochs + 1
            continue
        after = loader.state_dict()["position"]
        assert after == min(before + 4, 131) or (before == 131 and after == 4), (before, after)
        positions.append((loader.epoch, batch[-1].tolist()))
        time.sleep(0.001)
    except KeyboardInterrupt:
        interrupts += 1
thread.join()
copied = loader.stats()["copied_batches"]
del batch
rest = samples(loader)                                 # every slot is still there
assert loader.stats()["copied_batches"] == copied == 0
print(json.dumps([positions, interrupts]))
""",
        dataset,
    )
    got, interrupts = json.loads(run.finish())
    assert interrupts > 20
    by_epoch = {}
    for epoch, index in got:
        by_epoch.setdefault(epoch, []).extend(index)
    for seen in by_epoch.values():  # what was on its way to `positions` when a signal came is missing there; none is twice
        assert len(set(seen)) == len(seen)


def test_a_handled_signal_does_not_disturb_a_wait(dataset, script):
    run = script(
        TRAINER
        + """
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
assert sorted(samples(make(4))) == list(range(131))
signal.setitimer(signal.ITIMER_REAL, 0)
assert hits
print("done")
""",
        dataset,
    )
    assert run.finish() == "done\n"


@pytest.mark.parametrize("ending", ["pass", "keep = list(loader)", "sys.exit(0)", "import builtins; builtins.x = next(iter(loader))"])
def test_a_process_ends_cleanly_whatever_it_still_holds(dataset, script, ending):
    run = script(TRAINER + f"\nloader = make()\nit = iter(loader); b = next(it)\ncycle = [b]; cycle.append(cycle)\n{ending}\n", dataset)
    assert run.finish() == ""
    assert run.process.returncode == 0


def test_a_daemon_thread_in_the_middle_of_next_does_not_hang_the_exit(dataset, script):
    run = script(
        STALLED
        + """
import threading
thread = threading.Thread(target=lambda: list(iterator), daemon=True)
thread.start()
time.sleep(0.5)
assert thread.is_alive()
loader.close()                                         # does not wait for it either
os.kill(daemon, signal.SIGCONT)
print("leaving")
""",
        dataset,
    )
    assert run.finish(60) == "leaving\n"


JOB = """
import json, os, sys
import torch
import torch.distributed as dist
import headrace.torch as hr
dist.init_process_group("gloo")
loader = hr.DataLoader(sys.argv[1], 5, True, transform=[hr.RandomResizedCrop(16)], return_index=True, last_batch=sys.argv[2])
assert (loader.rank, loader.world_size) == (dist.get_rank(), dist.get_world_size())
steps = []
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    steps.append([index.tolist() for *_, index in loader])
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, (steps, loader.stats()["daemon_pid"], len(loader)))
if dist.get_rank() == 0:
    print(json.dumps(everything))
loader.close()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_of_torchrun_share_one_daemon_and_every_sample_comes_once(dataset, script, ranks):
    everything = json.loads(script(JOB, dataset, "partial", torchrun=ranks).finish(300).splitlines()[-1])
    assert len(everything) == ranks
    assert len({pid for _, pid, _ in everything}) == 1
    for epoch in range(2):
        together = [i for steps, _, _ in everything for step in steps[epoch] for i in step]
        assert sorted(together) == list(range(131))
    assert len({length for *_, length in everything} | {len(steps[0]) for steps, *_ in everything}) == 1
    pid = everything[0][1]
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the end of the job's daemon")


def test_the_default_of_a_job_pads_so_that_all_batches_are_alike(dataset, script):
    code = JOB.replace("last_batch=sys.argv[2]", "last_batch=None")
    everything = json.loads(script(code, dataset, "-", torchrun=2).finish(300).splitlines()[-1])
    for epoch in range(2):
        together = [i for steps, _, _ in everything for step in steps[epoch] for i in step]
        assert len(together) == 132 and set(together) == set(range(131))


def test_ranks_that_see_different_datasets_are_told(dataset, script, pack, image_folder, tmp_path):
    other = tmp_path / "other" / "a"
    other.mkdir(parents=True)
    (other / "x.jpg").write_bytes(next(image_folder.glob("*/*.jpg")).read_bytes())
    pack(tmp_path / "other", tmp_path / "one")
    run = script(
        """
        import os, sys
        import torch.distributed as dist
        import headrace.torch as hr
        from headrace import _job
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        if rank == 0:
            loader = hr.DataLoader(sys.argv[1], 1, transform=[hr.Resize((8, 8))])
        dist.barrier()
        if rank == 1:                                  # as if the same path held something else on another node
            _compare = _job.compare_dataset
            _job.compare_dataset = lambda path, digest: _compare(sys.argv[1], digest)
            try:
                hr.DataLoader(sys.argv[2], 1, transform=[hr.Resize((8, 8))])
            except hr.DatasetChangedError as error:
                print(error)
        dist.barrier()
        dist.destroy_process_group()
        """,
        dataset,
        tmp_path / "one",
        torchrun=2,
    )
    assert "differs between ranks" in run.finish(180)


def test_a_job_that_was_not_initialised_is_warned_of(dataset, script):
    run = script(
        """
        import sys, warnings
        import headrace.torch as hr
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hr.DataLoader(sys.argv[1], 4, transform=[hr.Resize((8, 8))])
        print([str(w.message) for w in caught])
        """,
        dataset,
        env={"WORLD_SIZE": "4", "RANK": "1"},
    )
    assert "init_process_group" in run.finish()
