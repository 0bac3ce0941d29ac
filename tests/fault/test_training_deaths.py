"""Deaths of trainers and daemons in the middle of an epoch: nothing lost, nothing twice, nothing left."""

import json
import os
import signal
import time

import pytest
from processes import wait_until

import headrace.torch as hr

TRAINER = """
import os, signal, sys, time, json
import headrace.torch as hr

def make(batch_size=4, **arguments):
    arguments = {"transform": [hr.RandomResizedCrop(64)], "return_index": True, "shuffle": True, **arguments}
    return hr.DataLoader(sys.argv[1], batch_size, **arguments)

def samples(batches):
    return [i for *_, index in batches for i in index.tolist()]
"""

# Tells each step on a line, so that the test can act between two of them.
STEPPING = (
    TRAINER
    + """
loader = make()
print(loader.stats()["daemon_pid"], flush=True)
for epoch in range(3):
    for images, labels, index in loader:
        assert images.isfinite().all()
        print(json.dumps([epoch, index.tolist(), round(images.double().sum().item(), 3)]), flush=True)
        time.sleep(0.01)
print("end", flush=True)
"""
)


def memory_kb(pid):
    """Memory of a process that is its own or shared: RssAnon + RssShmem."""
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


def shared_kb(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return int(fields["RssShmem"].split()[0])


def steps_of(run, kill_at=(), kill=None):
    """The steps that a STEPPING script tells, calling kill() after the given numbers of them."""
    steps = []
    while (line := run.line()) != "end":
        steps.append(json.loads(line))
        if len(steps) in kill_at:
            kill()
    run.finish()
    return steps


@pytest.fixture(scope="module")
def undisturbed(dataset):
    """Steps of three epochs without any death."""
    loader = hr.DataLoader(dataset, 4, True, transform=[hr.RandomResizedCrop(64)], return_index=True)
    return [
        [epoch, index.tolist(), round(images.double().sum().item(), 3)] for epoch in range(3) for images, _, index in loader
    ]


def test_a_private_daemon_killed_in_the_middle_is_started_again_and_no_step_is_lost_or_twice(dataset, script, undisturbed):
    code = STEPPING.replace(
        "        time.sleep(0.01)\n",
        """
        step += 1
        if step in (5, 6, 33, 60):
            pids.add(loader.stats()["daemon_pid"])
            os.kill(loader.stats()["daemon_pid"], signal.SIGKILL)
""",
    ).replace("for epoch in", "step, pids = 0, set()\nfor epoch in", 1)
    code = code.replace('print("end"', 'assert len(pids | {loader.stats()["daemon_pid"]}) == 5\nprint("end"')
    run = script(code, dataset)
    run.line()
    assert steps_of(run) == undisturbed


def test_a_named_daemon_killed_and_started_again_goes_on_with_the_next_batch(dataset, start_daemon, script, undisturbed, tmp_path):
    socket = tmp_path / "named.sock"
    daemons = [start_daemon(os.path.dirname(dataset), socket=socket)]
    run = script(STEPPING, dataset, env={"HEADRACE_SOCKET": str(socket)})
    assert int(run.line()) == daemons[0].pid

    def kill():
        daemons[-1].kill()
        daemons.append(start_daemon(os.path.dirname(dataset), socket=socket))

    assert steps_of(run, kill_at={3, 40, 41, 77}, kill=kill) == undisturbed


def test_a_daemon_that_is_told_to_stop_looks_the_same_and_spoils_no_batch_that_is_held(dataset, start_daemon, tmp_path):
    socket = tmp_path / "named.sock"
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    loader = hr.DataLoader(dataset, 16, transform=[hr.Resize((96, 96))], socket=socket, return_index=True)
    iterator = iter(loader)
    held = [next(iterator) for _ in range(2)]
    copies = [images.clone() for images, *_ in held]
    assert daemon.stop() == 0
    start_daemon(os.path.dirname(dataset), socket=socket)
    rest = [i for *_, index in iterator for i in index.tolist()]
    assert [i for *_, index in held for i in index.tolist()] + rest == list(range(131))
    assert all((images == copy).all() for (images, *_), copy in zip(held, copies))


def test_the_error_at_the_deadline_says_what_was_waited_for_and_why(dataset, start_daemon, tmp_path):
    socket = tmp_path / "named.sock"
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    loader = hr.DataLoader(dataset, 4, transform=[hr.Resize((64, 64))], socket=socket, timeout=1, return_index=True)
    iterator = iter(loader)
    got = next(iterator)[-1].tolist()
    daemon.stop()
    with pytest.raises(TimeoutError, match=r"epoch 0, position \d+ within 1000 ms.*stop"):
        while True:
            got += next(iterator)[-1].tolist()
    start_daemon(os.path.dirname(dataset), socket=socket)
    got += [i for *_, index in iterator for i in index.tolist()]  # the loader stayed usable
    assert got == list(range(131))


def test_a_daemon_that_hangs_is_named_at_the_deadline(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset))
    loader = hr.DataLoader(dataset, 4, transform=[hr.Resize((64, 64))], socket=daemon.socket, timeout=1)
    iterator = iter(loader)
    next(iterator)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match=f"pid {daemon.pid}"):
            list(iterator)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert next(iterator)


def test_a_dataset_packed_anew_under_a_restarted_daemon_is_a_clear_error(image_folder, pack, start_daemon, tmp_path):
    socket, packed = tmp_path / "named.sock", tmp_path / "packed"
    pack(image_folder, packed)
    daemon = start_daemon(tmp_path, socket=socket)
    loader = hr.DataLoader(packed, 4, transform=[hr.Resize((64, 64))], socket=socket)
    iterator = iter(loader)
    next(iterator)
    daemon.kill()
    import shutil

    smaller = tmp_path / "smaller"
    shutil.copytree(image_folder / "class01", smaller / "class01")
    shutil.rmtree(packed)
    pack(smaller, packed)
    start_daemon(tmp_path, socket=socket)
    with pytest.raises(hr.DatasetChangedError, match="changed"):
        list(iterator)


HOLDING = (
    TRAINER
    + """
loader = make(16, transform=[hr.Resize((512, 512))])
iterator = iter(loader)
batches = [next(iterator) for _ in range(2)]
child = os.fork() if sys.argv[2] == "fork" else None
if child == 0:
    assert batches[0][0].sum() > 0                     # maps the pages
    print("ready", os.getpid(), flush=True)
    time.sleep(120)
    os._exit(0)
if child is None:
    print("ready", flush=True)
time.sleep(120)
"""
)


@pytest.mark.parametrize("child", ["alone", "fork"])
def test_a_killed_trainers_memory_is_free_at_once_and_others_do_not_notice(dataset, start_daemon, script, child):
    daemon = start_daemon(os.path.dirname(dataset))
    other = hr.DataLoader(dataset, 4, True, transform=[hr.RandomResizedCrop(64)], socket=daemon.socket, return_index=True)
    iterator = iter(other)
    got = next(iterator)[-1].tolist()
    own_kb = shared_kb(daemon.pid)
    run = script(HOLDING, dataset, child, env={"HEADRACE_SOCKET": daemon.socket})
    ready, *living = run.line().split()
    assert ready == "ready"
    ring_kb = 4 * 16 * 3 * 512 * 512 * 4 // 1024
    wait_until(lambda: shared_kb(daemon.pid) - own_kb > 0.9 * ring_kb, 30, "the ring of the trainer")
    os.kill(run.pid, signal.SIGKILL)
    wait_until(lambda: shared_kb(daemon.pid) - own_kb < 0.1 * ring_kb, 5, "the daemon's memory")
    for pid in living:  # punched empty, though it still maps it
        wait_until(lambda: shared_kb(pid) < 0.1 * ring_kb, 5, "the memory that the child maps")
    got += [i for *_, index in iterator for i in index.tolist()]
    assert sorted(got) == list(range(131))
    (session,) = other._link.request(4, {})["sessions"]
    assert session["pid"] == os.getpid()


def test_a_trainer_killed_and_started_again_goes_on_from_its_checkpoint(dataset, start_daemon, script, undisturbed, tmp_path):
    daemon = start_daemon(os.path.dirname(dataset))
    code = (
        TRAINER
        + """
loader = make()
path = sys.argv[2]
if os.path.exists(path):
    loader.load_state_dict(json.load(open(path)))
while loader.epoch < 3:
    for images, labels, index in loader:
        state = {**loader.state_dict()}
        with open(path + ".part", "w") as file:
            json.dump(state, file)
        print(json.dumps([state["epoch"], index.tolist(), round(images.double().sum().item(), 3)]), flush=True)
        os.rename(path + ".part", path)
        time.sleep(0.005)
print("end", flush=True)
"""
    )
    steps, lives = [], 0
    while not steps or steps[-1] != "end":
        run = script(code, dataset, tmp_path / "state.json", env={"HEADRACE_SOCKET": daemon.socket})
        lives += 1
        for _ in range(17 if lives < 5 else 1000):
            line = run.line()
            steps.append(line if line == "end" else json.loads(line))
            if line == "end":
                break
        run.end()
    # A step that was told but whose checkpoint was not yet renamed comes again: the same one.
    unique = [step for i, step in enumerate(steps[:-1]) if i == 0 or step != steps[i - 1]]
    assert unique == undisturbed and lives == 5


def test_many_deaths_in_a_row_of_trainers_leave_the_daemon_as_it_was(dataset, start_daemon, script):
    daemon = start_daemon(os.path.dirname(dataset))
    one = hr.DataLoader(dataset, 4, transform=[hr.Resize((64, 64))], socket=daemon.socket)
    list(one)
    one.close()
    before, files = memory_kb(daemon.pid), len(os.listdir(f"/proc/{daemon.pid}/fd"))
    for _ in range(6):
        run = script(HOLDING, dataset, "alone", env={"HEADRACE_SOCKET": daemon.socket})
        assert run.line() == "ready"
        run.end()
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= files, 10, "closed descriptors")
    wait_until(lambda: memory_kb(daemon.pid) - before < 60_000, 10, "freed memory")
    again = hr.DataLoader(dataset, 4, transform=[hr.Resize((64, 64))], socket=daemon.socket, return_index=True)
    assert len(list(again)) == 33


def test_the_daemons_memory_does_not_grow_over_epochs(dataset, start_daemon):
    daemon = start_daemon(os.path.dirname(dataset))
    loader = hr.DataLoader(dataset, 16, True, transform=[hr.RandomResizedCrop(64)], socket=daemon.socket)
    for _ in range(5):
        list(loader)
    before = memory_kb(daemon.pid)
    for _ in range(30):
        for _ in loader:
            pass
    assert memory_kb(daemon.pid) - before < 8_000
    slots_kb = 4 * 16 * 3 * 64 * 64 * 4 // 1024
    assert memory_kb(daemon.pid) < slots_kb + 150_000
