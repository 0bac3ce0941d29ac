"""Trainers and daemons that die, seen from the hand-over socket."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from handover import OPEN, STATS, Connection, Session, control, small_spec
from processes import openings_wait, wait_until

SUPPORT = Path(__file__).resolve().parents[1] / "support"

# Opens a session, takes one batch, leaves a child that holds the socket and the ring, and waits for its death.
TRAINER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from handover import Session, small_spec
session = Session(sys.argv[2], small_spec(sys.argv[3], batch_size=64, prefetch_factor=6))
session.next()
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
time.sleep(600)
"""


def shared_memory(pid):
    """RssShmem of a process, in bytes."""
    return int(re.search(r"^RssShmem:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1]) * 1024


@pytest.fixture
def daemon(dataset, start_daemon):
    return start_daemon(os.path.dirname(dataset), "--threads", "2")


def test_a_killed_trainer_with_a_living_child_frees_its_memory_at_once(daemon, dataset, script):
    connection = control(daemon.socket)
    other = Session(daemon.socket, small_spec(dataset))
    before = connection.request(STATS, {})["host_memory_used"]
    trainer = script(TRAINER, SUPPORT, daemon.socket, dataset)
    child = int(trainer.line())
    ring = connection.request(STATS, {})["host_memory_used"] - before
    assert ring > 700_000
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.process.wait()
    wait_until(lambda: connection.request(STATS, {})["host_memory_used"] == before, 20, "the release of the ring")
    assert os.path.exists(f"/proc/{child}"), "the child was to live on"
    # What it mapped is empty: the pages are gone although they are mapped.
    wait_until(lambda: shared_memory(child) < ring // 8, 20, "the end of the child's pages")
    for _ in range(20):
        other.release(other.next())


def test_a_trainer_that_closes_keeps_what_it_holds(daemon, dataset):
    session = Session(daemon.socket, small_spec(dataset))
    slot = session.next()
    before = session.image_bytes(slot)
    assert any(before)
    session.connection.close()
    connection = control(daemon.socket)
    wait_until(lambda: not connection.request(STATS, {})["sessions"], 20, "the end of the session")
    time.sleep(0.3)
    assert session.image_bytes(slot) == before


def test_sigterm_under_load_ends_it_within_a_second_and_tells_why(daemon, dataset, script):
    loops = [
        script(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            from handover import Session, small_spec
            session = Session(sys.argv[2], small_spec(sys.argv[3], batch_size=32))
            session.release(session.next())
            print("runs", flush=True)
            try:
                while True:
                    session.release(session.next())
            except OSError:  # a bell into the closed socket
                pass
            except EOFError:
                pass
            print(session.reason)
            """,
            SUPPORT, daemon.socket, dataset,
        )  # fmt: skip
        for _ in range(4)
    ]
    assert [loop.line() for loop in loops] == ["runs"] * 4
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(timeout=20) == 0
    assert time.monotonic() - began < 1.5  # a second, and the start of this process's own thread
    for loop in loops:
        assert loop.finish().strip() == "the daemon was told to stop (SIGTERM)"
    assert not os.path.exists(daemon.socket)


def test_sigterm_ends_it_while_a_read_hangs(dataset, start_daemon, tmp_path):
    (tmp_path / "data" / "stuck").mkdir(parents=True)
    daemon = start_daemon(tmp_path / "data")
    with openings_wait(tmp_path / "data" / "stuck" / "dataset.json") as somebody_waits:
        connection = Connection(daemon.socket)
        connection.send(OPEN, json.dumps({"spec": small_spec(tmp_path / "data" / "stuck")}).encode())
        wait_until(somebody_waits, 20, "the opening of the dataset")
        control(daemon.socket)
        assert daemon.stop() == 0


def test_trainers_that_come_and_die_all_the_time_leave_nothing(daemon, dataset, script):
    connection = control(daemon.socket)
    descriptors = lambda: len(os.listdir(f"/proc/{daemon.pid}/fd"))  # noqa: E731
    control(daemon.socket).close()
    time.sleep(0.3)
    before = descriptors()
    code = """
        import os, sys
        sys.path.insert(0, sys.argv[1])
        from handover import Session, control, small_spec
        for i in range(25):
            if os.fork() == 0:
                keep = control(sys.argv[2])
                session = Session(sys.argv[2], small_spec(sys.argv[3]))
                for _ in range(i % 5):
                    session.release(session.next())
                os.kill(os.getpid(), 9)
        for i in range(25):
            os.wait()
        """
    runs = [script(code, SUPPORT, daemon.socket, dataset) for _ in range(3)]
    for run in runs:
        run.finish()
    wait_until(lambda: not connection.request(STATS, {})["sessions"], 20, "the end of the sessions")
    wait_until(lambda: connection.request(STATS, {})["host_memory_used"] == 0, 20, "the release of the rings")
    # The dataset stays open; the memfds of dying processes are watched for a moment.
    shards = 2 * 8
    wait_until(lambda: descriptors() <= before + shards, 20, "the release of the descriptors")
