"""SIGKILL and SIGSTOP/SIGCONT of trainer, daemon and packer at random moments: every batch and every byte as without.

Each case meets $HEADRACE_FAULT_MOMENTS moments (4 unless set), drawn with $HEADRACE_FAULT_SEED.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from handover import STATS, control
from headrace_cli import dataset_files
from processes import wait_until

import headrace

MOMENTS = int(os.environ.get("HEADRACE_FAULT_MOMENTS", "4"))
SEED = int(os.environ.get("HEADRACE_FAULT_SEED", "1"))
KILL, STOP = signal.SIGKILL, signal.SIGSTOP

TRAINER = """
import hashlib, os, signal, sys, time
import headrace

def digest(batch):
    return hashlib.sha1(b"".join(array.tobytes() for array in batch)).hexdigest()

def batches(dataset, socket):
    loader = headrace.Loader(dataset, 8, True, transform=[headrace.RandomResizedCrop(48)], return_index=True, socket=socket)
    while True:
        yield from loader
"""
here = {}
exec(TRAINER, here)  # the test takes batches as its trainers do
digest, batches = here["digest"], here["batches"]


@pytest.fixture(scope="module")
def undisturbed(dataset):
    """Digests of the first 2,000 batches."""
    return [digest(batch) for _, batch in zip(range(2000), batches(dataset, None))]


def strike(pid, number, chance):
    """SIGKILL, or SIGSTOP for a moment."""
    os.kill(pid, number)
    if number == STOP:
        time.sleep(chance.uniform(0, 0.02))
        os.kill(pid, signal.SIGCONT)


def held(daemon):
    """Its sessions and the memory of their rings."""
    connection = control(daemon.socket)
    stats = connection.request(STATS, {})
    connection.close()
    return len(stats["sessions"]), stats["host_memory_used"]


def memory_kb(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


@pytest.mark.parametrize("number", [KILL, STOP])
def test_of_the_daemon(dataset, start_daemon, undisturbed, tmp_path, number):
    socket, root, chance = tmp_path / "headrace.sock", Path(dataset).parent, random.Random(SEED)
    daemon, moments, done = start_daemon(root, socket=socket), 0, threading.Event()

    def disturb():
        nonlocal daemon, moments
        while moments < MOMENTS:
            time.sleep(chance.uniform(0, 0.06))
            strike(daemon.pid, number, chance)
            if number == KILL:
                daemon.process.wait()
                daemon = start_daemon(root, socket=socket)
            moments += 1
        done.set()

    thread = threading.Thread(target=disturb)
    thread.start()
    step = 0
    for step, batch in enumerate(batches(dataset, str(socket))):
        assert digest(batch) == undisturbed[step % len(undisturbed)], f"step {step}"
        del batch
        if done.is_set() or step + 1 == len(undisturbed):
            break
        time.sleep(0.002)
    thread.join()
    assert moments == MOMENTS
    print(f"{moments} moments, {step + 1} batches")
    wait_until(lambda: held(daemon) == (0, 0), 20, "the end of the session")
    assert daemon.stop() == 0
    assert not socket.exists() and not Path(f"{socket}.grpc").exists()


# Forks a trainer for each line that it reads, which needs no time for imports; each leases what it gets for a while. Told
# "check", the trainer compares itself, and ends.
TRAINERS = (
    TRAINER
    + """
expected = open(sys.argv[3]).read().split()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        held = []
        for step, batch in enumerate(batches(sys.argv[1], sys.argv[2])):
            assert digest(batch) == expected[step % len(expected)], step
            held = [*held[-2:], batch]
            if line == "check\\n" and step == 120:
                os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""
)


@pytest.mark.parametrize("number", [KILL, STOP])
def test_of_a_trainer(dataset, start_daemon, undisturbed, tmp_path, number):
    chance = random.Random(SEED)
    daemon = start_daemon(Path(dataset).parent)
    other, taken = batches(dataset, daemon.socket), 0
    program, digests = tmp_path / "trainers.py", tmp_path / "digests"
    program.write_text(TRAINERS)
    digests.write_text("\n".join(undisturbed))
    trainers = subprocess.Popen(
        [sys.executable, program, dataset, daemon.socket, digests], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    before = memory = None
    moments = 0
    while moments < MOMENTS:
        trainers.stdin.write("check\n" if number == STOP else "go\n")
        trainers.stdin.flush()
        pid = int(trainers.stdout.readline())
        for _ in range(1 if number == KILL else 5):
            time.sleep(chance.uniform(0, 0.08))
            try:
                if number == STOP and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                    break
                strike(pid, number, chance)
            except (FileNotFoundError, ProcessLookupError):  # it has taken its batches and is gone
                break
            moments += 1
        assert int(trainers.stdout.readline()) == (KILL if number == KILL else 0)
        assert digest(next(other)) == undisturbed[taken % len(undisturbed)]  # somebody else's session does not notice
        taken += 1
        if memory is None:
            before, memory = len(os.listdir(f"/proc/{daemon.pid}/fd")), memory_kb(daemon.pid)
    trainers.stdin.close()
    assert trainers.wait(60) == 0
    print(f"{moments} moments, memory {memory} → {memory_kb(daemon.pid)} kB")
    wait_until(lambda: held(daemon)[0] == 1, 20, "the end of the other sessions")
    wait_until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) <= before, 20, "the release of the descriptors")
    wait_until(lambda: memory_kb(daemon.pid) < memory + 10_000, 20, "the release of the memory")
    other.close()
    wait_until(lambda: held(daemon) == (0, 0), 20, "the end of the last session")


@pytest.fixture(scope="module")
def packed(image_folder, pack, tmp_path_factory):
    """A folder that takes a while to pack, its dataset's files, and the seconds that it took."""
    root = tmp_path_factory.mktemp("moments")
    for number, file in enumerate(sorted(image_folder.rglob("*.*"))):
        (root / "src" / file.parent.name).mkdir(parents=True, exist_ok=True)
        for copy in range(6):
            os.link(file, root / "src" / file.parent.name / f"{copy}-{number}-{file.name}")
    began = time.monotonic()
    pack(root / "src", root / "whole", "--shard-size", "300kB")
    return root / "src", dataset_files(root / "whole"), time.monotonic() - began


@pytest.mark.parametrize("number", [KILL, STOP])
def test_of_the_packer(executable, packed, tmp_path, number):
    source, whole, seconds = packed
    chance, moments, runs = random.Random(SEED), 0, 0
    target = tmp_path / "dataset"
    command = [executable, "pack", str(source), str(target), "--shard-size", "300kB"]
    while moments < MOMENTS:
        # A killed one goes on where it was; a finished one begins anew.
        again = ["--overwrite"] if (target / "dataset.json").exists() else []
        run = subprocess.Popen([*command, *again], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        runs += 1
        while run.poll() is None and moments < MOMENTS:
            time.sleep(chance.uniform(0, seconds / 3))
            if run.poll() is None:
                strike(run.pid, number, chance)
                moments += 1
                if number == KILL:
                    run.wait()
        _, errors = run.communicate(timeout=120)
        assert run.returncode in (0, -KILL if number == KILL else 0), errors
    if run.returncode != 0:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    print(f"{moments} moments, {runs} runs")
    assert dataset_files(target) == whole  # nothing more, nothing less
