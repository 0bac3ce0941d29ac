"""Trains for N minutes while daemon, trainers and a packer are killed and stopped at random and a hostile client talks.

    .venv/bin/python tools/soak.py [--minutes 30] [--trainers 3] [--seed 1] [--images 400]

Prints a line a minute and the sum as JSON. Exits with 1 if a batch was lost, came twice or held other pixels than without
faults, or if the packed bytes differ. A trainer that was killed goes on from its checkpoint, which it writes after each batch.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from handover import OPEN, Connection, Session, small_spec  # noqa: E402
from headrace_cli import dataset_files, executable  # noqa: E402
from image_files import fill_folder  # noqa: E402
from processes import Daemon  # noqa: E402

import headrace  # noqa: E402

TRANSFORM = [headrace.Resize((64, 64))]
BATCH_SIZE = 16


def load(dataset, socket, seed):
    return headrace.Loader(
        dataset, BATCH_SIZE, True, seed=seed, transform=TRANSFORM, return_index=True, dtype="uint8", socket=socket, timeout=120
    )


def digest(image):
    return hashlib.sha1(image.tobytes()).hexdigest()


def train(dataset, socket, seed, folder):
    """A trainer: checks each batch's pixels, notes it, then writes its checkpoint. Never ends by itself."""
    folder = Path(folder)
    expected = json.loads((folder.parent / "pixels.json").read_text())
    checkpoint, part = folder / "checkpoint", folder / "checkpoint.part"
    loader = load(dataset, socket, seed)
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    held = []
    with open(folder / "batches", "a", buffering=1) as notes:
        while True:
            for images, _, index in loader:
                wrong = [number for image, number in zip(images, index.tolist()) if digest(image) != expected[number]]
                state = loader.state_dict()
                notes.write(json.dumps([index.tolist(), wrong]) + "\n")
                part.write_text(json.dumps(state))
                part.rename(checkpoint)
                held = [*held[-1:], images]
                time.sleep(0.03)  # the step of a training


class Trainer:
    """Started again when it was killed."""

    def __init__(self, dataset, socket, seed, folder):
        self.arguments = [str(dataset), str(socket), str(seed), str(folder)]
        folder.mkdir()
        self.folder, self.starts = folder, []
        self.start()

    def start(self):
        notes = self.folder / "batches"
        # A line that the kill cut off was of a batch whose checkpoint was not written either.
        if notes.exists():
            text = notes.read_text()
            notes.write_text(text[: text.rfind("\n") + 1])
            self.starts.append(text.count("\n"))
        self.process = subprocess.Popen([sys.executable, __file__, "--train", *self.arguments])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def judge(self, order):
        """(batches, lost, twice, wrong samples): its notes against the batches without faults, epoch after epoch."""
        due, lines = [], [json.loads(line) for line in (self.folder / "batches").read_text().splitlines()]
        epochs, lost, twice, at = 0, 0, 0, 0
        for number, (index, _) in enumerate(lines):
            while at + len(order(0)) >= len(due):
                due += order(epochs)
                epochs += 1
            if index == due[at]:
                at += 1
            elif number in self.starts and index == lines[number - 1][0]:
                pass  # told, but killed before its checkpoint was written: the same one again
            elif index in due[at : at + len(order(0))]:
                skipped = due[at:].index(index)
                lost, at = lost + skipped, at + skipped + 1
            else:
                twice += 1
        return len(lines), lost, twice, sum(len(wrong) for _, wrong in lines)


def memory_kb(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


class Soak:
    def __init__(self, arguments, root):
        self.chance = random.Random(arguments.seed)
        self.root, self.faults = root, collections.Counter()
        fill_folder(root / "images", 5, arguments.images // 5)
        self.dataset = root / "data" / "dataset"
        self.pack_command = [executable(), "pack", str(root / "images"), str(root / "packed"), "--shard-size", "200kB"]
        for target in (self.dataset, root / "whole"):
            subprocess.run([*self.pack_command[:3], str(target), *self.pack_command[4:]], check=True, capture_output=True)
        self.socket = root / "headrace.sock"
        self.start_daemon()
        with load(self.dataset, str(self.socket), 0) as loader:
            pixels = {}
            for images, _, index in loader:
                pixels.update(zip(index.tolist(), map(digest, images)))
            (root / "pixels.json").write_text(json.dumps([pixels[number] for number in range(len(pixels))]))
        self.packer, self.packs = None, 0
        self.trainers = [
            Trainer(self.dataset, self.socket, seed, root / f"trainer{seed}") for seed in range(arguments.trainers)
        ]

    def start_daemon(self):
        self.daemon = Daemon(executable(), self.root / "data", self.socket, "--threads", "2", "--log-level", "error")

    # Each is a fault; drawn by name.

    def kill_daemon(self):
        self.daemon.kill()
        self.start_daemon()

    def end_daemon(self):
        assert self.daemon.stop() == 0
        self.start_daemon()

    def stop_daemon(self):
        self._stop(self.daemon.pid)

    def kill_trainer(self):
        trainer = self.chance.choice(self.trainers)
        trainer.kill()
        trainer.start()

    def stop_trainer(self):
        self._stop(self.chance.choice(self.trainers).process.pid)

    def kill_packer(self):
        if self.packer is not None:
            self.packer.kill()
            self.packer.wait()
            self.packer = None

    def garbage(self):
        connection = Connection(str(self.socket))
        with contextlib.suppress(OSError):
            connection.socket.sendall(self.chance.randbytes(self.chance.randrange(1, 5000)))
        connection.close()

    def half_closed(self):
        connection = Connection(str(self.socket))
        connection.send(OPEN, json.dumps({"spec": small_spec(self.dataset)}).encode())
        connection.socket.shutdown(1)  # SHUT_WR
        connection.close()

    def hostile_sessions(self):
        sessions = []
        with contextlib.suppress(OSError, EOFError):
            for _ in range(self.chance.randrange(1, 30)):
                sessions.append(Session(str(self.socket), small_spec(self.dataset)))
            for session in sessions:  # all over the control page
                session.ring[0:16384] = self.chance.randbytes(16384)
                session.connection.socket.send(b"x")
        for session in sessions:
            session.connection.close()

    def _stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0, 0.3))
        os.kill(pid, signal.SIGCONT)

    FAULTS = (kill_daemon, end_daemon, stop_daemon, kill_trainer, stop_trainer, kill_packer, garbage, half_closed,
              hostile_sessions)  # fmt: skip

    def pack(self):
        """The packer packs all the time; what it finishes, also in the moment of its death, must be the same bytes."""
        if self.packer is not None and self.packer.poll() is None:
            return
        assert self.packer is None or self.packer.returncode == 0, "the packer failed"
        packed = self.root / "packed"
        if (packed / "dataset.json").exists() and not (packed / "pack.journal").exists():
            assert dataset_files(packed) == dataset_files(self.root / "whole"), "the packed bytes differ"
            self.packs += 1
            shutil.rmtree(packed)
        self.packer = subprocess.Popen(self.pack_command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def settle(self):
        """The daemon's memory and descriptors with its trainers at work."""
        time.sleep(5)
        return memory_kb(self.daemon.pid), len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def run(self, minutes):
        start = self.settle()
        began, told = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < 60 * minutes:
            fault = self.chance.choice(self.FAULTS)
            fault(self)
            self.faults[fault.__name__] += 1
            self.pack()
            for trainer in self.trainers:
                assert trainer.process.poll() is None, f"a trainer ended with {trainer.process.returncode}"
            time.sleep(self.chance.uniform(0, 0.5))
            if elapsed >= 60 * (told + 1):
                told += 1
                print(f"minute {told}: {sum(self.faults.values())} faults, daemon {memory_kb(self.daemon.pid)} kB", flush=True)
        end = self.settle()
        return start, end

    def order(self, seed):
        """order(epoch): its batches' sample numbers, from a daemon of its own."""
        loader, known = load(self.dataset, None, seed), {}

        def of(epoch):
            if epoch not in known:
                loader.set_epoch(epoch)
                known[epoch] = [index.tolist() for *_, index in loader]
            return known[epoch]

        return of

    def close(self):
        for trainer in self.trainers:
            trainer.kill()
        self.kill_packer()
        self.daemon.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("minutes", 30.0), ("trainers", 3), ("seed", 1), ("images", 400)):
        parser.add_argument(f"--{name}", type=type(default), default=default)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
        soak = Soak(arguments, Path(folder))
        try:
            start, end = soak.run(arguments.minutes)
        finally:
            soak.close()
        sums = [sum(values) for values in zip(*(t.judge(soak.order(seed)) for seed, t in enumerate(soak.trainers)))]
        result = dict(zip(("batches", "lost", "twice", "wrong_samples"), sums))
        result.update(
            minutes=arguments.minutes, faults=sum(soak.faults.values()), of_each=soak.faults, packs_finished=soak.packs,
            daemon_kb=(start[0], end[0]), daemon_descriptors=(start[1], end[1]),
        )  # fmt: skip
        print(json.dumps(result, indent=1))
        return 1 if result["lost"] or result["twice"] or result["wrong_samples"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
    sys.exit(main())
