"""Which daemon serves a loader, and what a private one leaves behind."""

import os
import re
import subprocess
import time

import pytest
from processes import wait_until

import headrace.torch as hr
from headrace import _connection

SMALL = [hr.Resize((24, 20))]
PID = """
import os, sys, time
import headrace.torch as hr
loader = hr.DataLoader(sys.argv[1], 4, transform=[hr.Resize((24, 20))], timeout=float(os.environ.get("TEST_TIMEOUT", "60")))
next(iter(loader))
print(loader.stats()["daemon_pid"], flush=True)
"""


def abstract_names(trainer):
    """Those of its private daemon; other tests have theirs."""
    return re.findall(rf"@headrace-\d+-{trainer}-\S*", open("/proc/net/unix").read())


def test_one_process_has_one_private_daemon_for_all_its_loaders(dataset):
    loaders = [hr.DataLoader(dataset, 4, transform=SMALL) for _ in range(3)]
    assert len({loader.stats()["daemon_pid"] for loader in loaders}) == 1


def test_it_ends_with_its_process_and_leaves_nothing(dataset, script, tmp_path):
    folders = ["/dev/shm", "/tmp", os.environ["XDG_RUNTIME_DIR"], os.path.dirname(dataset), dataset]
    before = {folder: set(os.listdir(folder)) for folder in folders}
    for ending in ("", "os.kill(os.getpid(), 9)"):
        run = script(PID + ending + "\n", dataset, env={"TMPDIR": str(tmp_path)})
        pid = int(run.line())
        run.process.wait(60)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the end of the private daemon")
        assert not abstract_names(run.pid)
    for folder in folders:
        new = set(os.listdir(folder)) - before[folder]
        assert not [name for name in new if "headrace" in name.lower()], folder


def test_it_holds_none_of_its_trainers_streams_and_has_a_session_of_its_own(dataset, script):
    """Else subprocess.run(capture_output=True) would wait for it, and torchrun's killpg would kill it with one rank."""
    run = script(PID + "time.sleep(60)\n", dataset)
    pid = int(run.line())
    folder = f"/proc/{pid}/fd"
    links = {int(number): os.readlink(f"{folder}/{number}") for number in os.listdir(folder)}
    assert [links[number] for number in (0, 1, 2)] == ["/dev/null"] * 3
    assert not [link for link in links.values() if link.startswith("pipe:")]
    assert os.getsid(pid) not in (os.getsid(run.pid), os.getsid(0))
    assert abstract_names(run.pid)


def test_the_environment_names_a_daemon(dataset, start_daemon, script):
    daemon = start_daemon(os.path.dirname(dataset))
    assert int(script(PID, dataset, env={"HEADRACE_SOCKET": daemon.socket}).line()) == daemon.pid


def test_the_daemon_of_the_node_is_preferred_where_it_serves_the_dataset(dataset, start_daemon, script, tmp_path, pack, image_folder):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    daemon = start_daemon(os.path.dirname(dataset), socket=folder / "headrace.sock")
    environment = {"XDG_RUNTIME_DIR": str(folder)}
    assert int(script(PID, dataset, env=environment).line()) == daemon.pid
    elsewhere = pack(image_folder, tmp_path / "elsewhere")
    assert int(script(PID, elsewhere, env=environment).line()) != daemon.pid
    daemon.kill()
    assert int(script(PID, dataset, env=environment).line()) != daemon.pid  # its socket is still there


def test_a_named_socket_where_nobody_listens_is_an_error_at_the_deadline(dataset, tmp_path):
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="nobody.sock"):
        hr.DataLoader(dataset, 4, transform=SMALL, socket=tmp_path / "nobody.sock", timeout=0.5)
    assert time.monotonic() - began >= 0.5


def test_a_named_socket_is_waited_for(dataset, start_daemon, script, tmp_path):
    socket = tmp_path / "late.sock"
    run = script(PID, dataset, env={"HEADRACE_SOCKET": str(socket)})
    time.sleep(1.0)
    daemon = start_daemon(os.path.dirname(dataset), socket=socket)
    assert int(run.line()) == daemon.pid


def test_a_dataset_outside_the_roots_of_a_named_daemon_is_refused(dataset, start_daemon, tmp_path, pack, image_folder):
    daemon = start_daemon(os.path.dirname(dataset))
    elsewhere = pack(image_folder, tmp_path / "elsewhere")
    with pytest.raises((PermissionError, FileNotFoundError), match="elsewhere"):
        hr.DataLoader(elsewhere, 4, transform=SMALL, socket=daemon.socket)


def test_a_missing_executable_is_an_error_that_says_where_it_was_looked_for(dataset, script):
    run = script(
        """
        import sys
        import headrace.torch as hr
        from headrace import _library
        _library.executable_path = lambda: None
        try:
            hr.DataLoader(sys.argv[1], 4, transform=[hr.Resize((8, 8))])
        except hr.DaemonError as error:
            print(error)
        """,
        dataset,
    )
    assert "executable was not found" in run.finish()


def test_a_daemon_that_cannot_start_is_an_error_with_its_own_words(dataset, script, tmp_path):
    broken = tmp_path / "headrace"
    broken.write_text("#!/bin/sh\nprintf 'the disk is on fire' >&4\nexit 1\n")
    broken.chmod(0o755)
    run = script(
        PID.replace("loader =", "try:\n  loader =").replace("next(iter", "  next(iter").replace("print(loader", "  print(loader")
        + "except hr.HeadraceError as error:\n  print(error)\n",
        dataset,
        env={"HEADRACE_EXECUTABLE": str(broken), "TEST_TIMEOUT": "10"},
    )
    assert "the disk is on fire" in run.finish()


def test_a_job_of_torchrun_has_one_name_and_grace_alone_has_none(monkeypatch):
    from headrace import _job

    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    name, grace = _job.private_name()
    assert str(os.getpid()) in name and grace == 0
    for key, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1234"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(key, value)
    job, grace = _job.private_name()
    code = "from headrace import _job; print(*_job.private_name())"
    import sys

    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [job, str(grace)] == other == [job, "2000"]
    monkeypatch.setenv("MASTER_PORT", "1235")
    assert _job.private_name()[0] != job


def test_the_default_path_is_in_the_runtime_folder_or_in_run(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/somewhere")
    assert _connection.default_path() == "/somewhere/headrace.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert _connection.default_path() == "/run/headrace/headrace.sock"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_its_cores_are_those_of_all_its_trainers(dataset, script):
    """Two ranks of one job, each on a core of its own: the daemon that one of them started may use both."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(os.getpid())}
    code = """
        import os, sys, time
        import headrace.torch as hr
        rank, core = map(int, sys.argv[2:])
        os.sched_setaffinity(0, {core})
        loader = hr.DataLoader(sys.argv[1], 4, transform=[hr.Resize((24, 20))], rank=rank, world_size=2)
        next(iter(loader))
        print(loader.stats()["daemon_pid"], flush=True)
        time.sleep(60)
        """
    seen, runs = [], []
    for rank, core in enumerate(cores):
        runs.append(script(code, dataset, rank, core, env=environment))
        pid = int(runs[-1].line())
        seen.append({frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir(f"/proc/{pid}/task")})
    assert seen == [{frozenset(cores[:1])}, {frozenset(cores)}]
