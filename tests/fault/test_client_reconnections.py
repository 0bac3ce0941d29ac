"""The C library against real daemons that die at any moment: the same batches, and held ones untouched."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from processes import wait_until

import headrace
from headrace import _library

REPOSITORY = Path(__file__).resolve().parents[2]
TRANSFORM = [headrace.RandomResizedCrop(64), headrace.RandomHorizontalFlip()]
STEPS = 400


def digest(batch):
    images, labels, names, index = batch
    parts = [images.tobytes(), labels.tobytes(), repr(names).encode(), index.tobytes()]
    return hashlib.sha1(b"".join(parts)).hexdigest()


def batches(loader):
    """Epoch after epoch."""
    while True:
        yield from loader


def open_loader(dataset, **arguments):
    return headrace.Loader(
        dataset, 8, True, transform=TRANSFORM, return_index=True, fields=("image", "label", "name"), **arguments
    )


@pytest.fixture(scope="module")
def undisturbed(dataset):
    """Hashes of the first STEPS batches, over the ends of many epochs."""
    with open_loader(dataset) as loader:
        return [digest(batch) for _, batch in zip(range(STEPS), batches(loader))]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_batches_of_a_daemon_that_ends_again_and_again_are_the_same_and_held_ones_stay(
    dataset, start_daemon, undisturbed, tmp_path, end
):
    socket = tmp_path / "headrace.sock"
    root = Path(dataset).parent
    done = threading.Event()
    daemon, kills = start_daemon(root, "--threads", "2", socket=socket), 0

    def disturb():
        nonlocal daemon, kills
        chance = random.Random(11)
        while not done.wait(chance.uniform(0.02, 0.4)):
            daemon.process.send_signal(end)
            daemon.process.wait()
            socket.unlink(missing_ok=True)
            kills += 1
            daemon = start_daemon(root, "--threads", "2", socket=socket)

    thread = threading.Thread(target=disturb)
    held, chance = [], random.Random(12)
    with open_loader(dataset, socket=str(socket)) as loader:
        thread.start()
        try:
            for step, batch in zip(range(STEPS), batches(loader)):
                assert digest(batch) == undisturbed[step], f"step {step}"
                held.append((step, batch))
                while len(held) > chance.randrange(6):
                    old, kept = held.pop(chance.randrange(len(held)))
                    assert digest(kept) == undisturbed[old], f"step {old}, held until step {step}"
                    del kept
                del batch
                time.sleep(0.003)
        finally:
            done.set()
            thread.join()
        assert loader.stats()["reconnections"] >= 2
    assert kills >= 2
    for step, batch in held:  # after close()
        assert digest(batch) == undisturbed[step]


def test_a_loop_whose_daemon_forgot_its_memory_waits_for_it(dataset, start_daemon, tmp_path, script):
    """The memory of a new daemon is still taken by a trainer that dies a little later."""
    socket = tmp_path / "headrace.sock"
    root = Path(dataset).parent
    daemon = start_daemon(root, socket=socket)
    with open_loader(dataset, socket=str(socket)) as loader:
        loop = batches(loader)
        next(loop)
        ring = loader.stats()
        assert ring["slots"] == 4
        daemon.kill()
        socket.unlink(missing_ok=True)
        limit = 3_000_000  # one such ring of 4 × 8 × 64 × 64 × 3 float32 is 1.6 MB
        start_daemon(root, "--host-memory", str(limit), socket=socket)
        thief = script(
            """
            import sys, time
            import headrace
            loader = headrace.Loader(sys.argv[1], 8, transform=[headrace.RandomResizedCrop(64)], socket=sys.argv[2])
            keep = next(iter(loader))
            print("holds", flush=True)
            time.sleep(600)
            """,
            dataset, socket,
        )  # fmt: skip
        assert thief.line() == "holds"
        threading.Timer(0.5, thief.process.kill).start()
        for _ in range(8):
            next(loop)
        assert thief.process.poll() is not None, "the memory was free before its holder died"
        assert loader.stats()["reconnections"] == 1


def test_a_trainers_forked_child_keeps_no_socket_of_it(dataset, start_daemon, script):
    """So the daemon sees the end of the session with the trainer's death, not with the child's."""
    daemon = start_daemon(Path(dataset).parent)
    trainer = script(
        """
        import os, sys, time
        import headrace
        loader = headrace.Loader(sys.argv[1], 8, transform=[headrace.RandomResizedCrop(64)], socket=sys.argv[2])
        keep = next(iter(loader))
        if os.fork() == 0:
            print(os.getpid(), flush=True)
        time.sleep(600)
        """,
        dataset, daemon.socket,
    )  # fmt: skip
    child = int(trainer.line())
    try:
        sockets = [name for name in os.listdir(f"/proc/{child}/fd") if os.readlink(f"/proc/{child}/fd/{name}").startswith("socket:")]
        assert sockets == []
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_example_in_c_reads_a_dataset_through_a_private_daemon(dataset, executable, tmp_path):
    library = Path(_library.library_path())
    shutil.copy(library, tmp_path / "libheadrace.so")
    program = tmp_path / "c_client"
    subprocess.run(
        ["cc", "-std=gnu11", "-Wall", "-Werror", f"-I{REPOSITORY}", str(REPOSITORY / "examples/c_client.c"), "-o", str(program),
         f"-L{tmp_path}", "-lheadrace", f"-Wl,-rpath,{tmp_path}"],
        check=True, timeout=60,
    )  # fmt: skip
    spec = f'{{"dataset": "{dataset}", "batch_size": 16, "transform": [{{"name": "RandomResizedCrop", "size": 32}}]}}'
    address = f"@headrace-example-{os.getpid()}"
    done = subprocess.run([program, address, spec, "20", executable], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    # 131 samples: eight batches of 16 and one of 3.
    assert lines[0] == "epoch 0, position 0: 16 samples; [16 × 3 × 32 × 32] [16] [16]"
    assert lines[8] == "epoch 0, position 128: 3 samples; [3 × 3 × 32 × 32] [3] [3]"
    assert lines[9].startswith("epoch 1, position 0: 16 samples")
    assert lines[20].startswith("294 samples in ")
    wait_until(lambda: address not in Path("/proc/net/unix").read_text(), 20, "the end of the private daemon")
