"""Clients that hoard, dawdle, close half, lie or come by the thousand: the daemon serves the others, and keeps nothing."""

import json
import os
import random
import resource
import signal
import socket
import time

import pytest
from handover import AUDIT, HELLO, OPEN, SEEK, STATS, Connection, Refused, Session, control, small_spec
from processes import wait_until

SUPPORT = os.path.join(os.path.dirname(__file__), "..", "support")


@pytest.fixture
def daemon(dataset, start_daemon):
    return start_daemon(os.path.dirname(dataset), "--threads", "2", "--host-memory", "1GiB", "--frame-timeout", "2000")


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def memory_kb(daemon):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{daemon.pid}/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


@pytest.fixture
def undisturbed(daemon, dataset):
    """A session that takes batches meanwhile; at the end the daemon holds what it held with this one alone."""
    session = Session(daemon.socket, small_spec(dataset))
    connection = control(daemon.socket)
    session.release(session.next())
    # The hostile ones may be the first to read the other images, or to ask for an audit.
    connection.request(AUDIT, {"spec": small_spec(dataset), "epoch": 0, "position": 0, "step": 0})
    wait_until(lambda: connection.request(STATS, {})["sessions"][0]["slots"] == 4, 20, "the ring")
    before = connection.request(STATS, {})["host_memory_used"], descriptors(daemon), memory_kb(daemon)
    yield session
    for _ in range(50):
        session.release(session.next())
    wait_until(lambda: len(connection.request(STATS, {})["sessions"]) == 1, 20, "the end of the other sessions")
    wait_until(lambda: connection.request(STATS, {})["host_memory_used"] == before[0], 20, "the release of the rings")
    wait_until(lambda: descriptors(daemon) <= before[1], 20, "the release of the descriptors")
    # malloc keeps the heap of the peak: some 25 kB of each of a thousand sessions, the same again the next time.
    wait_until(lambda: memory_kb(daemon) < before[2] + 40_000, 20, "the release of the memory")


def test_a_trainer_that_is_killed_with_every_slot_leased_frees_them_all(daemon, dataset, undisturbed, script):
    run = script(
        """
        import os, sys, time
        sys.path.insert(0, sys.argv[1])
        from handover import Session, small_spec
        session = Session(sys.argv[2], small_spec(sys.argv[3]))
        print([session.next() for _ in range(session.slots)], flush=True)
        time.sleep(600)
        """,
        SUPPORT, daemon.socket, dataset,
    )  # fmt: skip
    assert run.line() == "[0, 1, 2, 3]"
    os.kill(run.pid, signal.SIGKILL)


def test_a_client_that_reads_nothing_is_hung_up_on_and_one_that_reads_slowly_is_served(daemon, dataset, undisturbed):
    body = json.dumps({"spec": small_spec(dataset, batch_size=100), "epoch": 0, "position": 0, "step": 0}).encode()
    deaf, slow = control(daemon.socket), control(daemon.socket)
    slow.send(AUDIT, body)
    expected = control(daemon.socket).request(AUDIT, json.loads(body))
    deaf.socket.settimeout(0.2)
    with pytest.raises((TimeoutError, OSError)):  # until the buffers are full, then until it is hung up on
        while True:
            deaf.socket.sendall(body_frame(AUDIT, body))
    undisturbed.release(undisturbed.next())
    answer = b""
    while len(answer) < 16 or len(answer) < 16 + int.from_bytes(answer[8:12], "little"):
        answer += slow.socket.recv(97)
        time.sleep(0.001)
    assert json.loads(answer[16:]) == expected
    deaf.socket.settimeout(20)
    with pytest.raises(OSError):
        while deaf.socket.send(b"\0"):
            time.sleep(0.05)


def body_frame(kind, body):
    return b"HRC1" + b"".join(number.to_bytes(4, "little") for number in (kind, len(body), 1)) + body


@pytest.mark.parametrize("half", [socket.SHUT_RD, socket.SHUT_WR])
def test_clients_that_close_half_their_socket_leave_nothing(daemon, dataset, undisturbed, half):
    for _ in range(20):
        session = Session(daemon.socket, small_spec(dataset))
        session.connection.socket.shutdown(half)
        connection = control(daemon.socket)
        connection.socket.shutdown(half)
        opening = Connection(daemon.socket)
        opening.send(OPEN, json.dumps({"spec": small_spec(dataset)}).encode())
        opening.socket.shutdown(half)
        for one in (session.connection, connection, opening):
            one.close()


def test_right_messages_in_the_wrong_state_are_refused(daemon, dataset, undisturbed):
    early = Connection(daemon.socket)
    early.send(SEEK, bytes(24))
    with pytest.raises(Refused, match="HELLO or OPEN"):
        early.read()
    with pytest.raises(EOFError):
        early.read()
    late = control(daemon.socket)
    for kind, body, code in (
        (OPEN, json.dumps({"spec": small_spec(dataset)}).encode(), 3),
        (SEEK, bytes(24), 5),  # no such session
        (SEEK, bytes(23), 3),
        (HELLO, bytes(7), 3),
    ):
        late.send(kind, body)
        with pytest.raises(Refused) as refused:
            late.read()
        assert refused.value.code == code, (kind, refused.value)
    # Frames on a session's connection are bells, whatever they say.
    session = Session(daemon.socket, small_spec(dataset))
    session.connection.send(SEEK, bytes(24))
    session.connection.send(OPEN, b"{}")
    for _ in range(8):
        session.release(session.next())
    session.connection.close()


def test_garbage_of_every_kind_stops_nobody(daemon, dataset, undisturbed):
    chance = random.Random(3)
    for _ in range(200):
        connection = Connection(daemon.socket)
        data = chance.randbytes(chance.randrange(1, 3000))
        if chance.random() < 0.5:  # a right header
            data = body_frame(chance.randrange(0, 12), data)
        try:
            connection.socket.sendall(data)
        except OSError:
            pass
        connection.close()


def test_a_thousand_sessions_are_served_and_leave_nothing(daemon, dataset, undisturbed):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    sessions = []
    try:
        for _ in range(1000):
            sessions.append(Session(daemon.socket, small_spec(dataset, prefetch_factor=1)))
        images = {session.image_bytes(session.next()) for session in sessions}
        assert len(images) == 1
        undisturbed.release(undisturbed.next())
        with pytest.raises(Refused, match="--max-connections"):
            for _ in range(100):
                sessions.append(Session(daemon.socket, small_spec(dataset)))
    finally:
        for session in sessions:
            session.connection.close()
            session.ring.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
