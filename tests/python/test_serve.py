"""`headrace serve`, `top` and `doctor` as processes."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import urllib.request
from pathlib import Path

import pytest
from handover import OPEN, STATS, Connection, Refused, Session, control, small_spec
from processes import openings_wait, wait_until

import headrace

REPOSITORY = Path(__file__).resolve().parents[2]


def serve(executable, *arguments, **options):
    """Runs it to its end, which must come soon."""
    command = [executable, "serve", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)


def log_of(daemon):
    return Path(daemon.socket + ".log").read_text()


@pytest.fixture
def root(dataset):
    return os.path.dirname(dataset)


def test_the_socket_is_for_its_user_only(root, start_daemon):
    daemon = start_daemon(root)
    for path in (daemon.socket, daemon.socket + ".grpc"):
        wait_until(lambda: os.path.exists(path), 20, path)  # noqa: B023
        info = os.stat(path)
        assert stat.S_ISSOCK(info.st_mode) and stat.S_IMODE(info.st_mode) == 0o600


def test_the_effective_settings_are_logged(root, start_daemon, tmp_path):
    config = tmp_path / "headrace.toml"
    config.write_text('threads = 3\nhost_memory = "64MiB"\nread_ahead = 1\n')
    daemon = start_daemon(root, "--config", str(config), "--threads", "2")
    control(daemon.socket)
    wait_until(lambda: "log_level" in log_of(daemon), 20, "the settings in the log")
    log = log_of(daemon)
    assert re.search(r"threads = 2  # threads$", log, re.M)  # the command line counts more
    assert 'host_memory = "64MiB"' in log and "read_ahead = 1" in log
    assert control(daemon.socket).request(STATS, {})["host_memory_bytes"] == 64 << 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "--data"),
        (("--data", "/nothing/here"), "/nothing/here"),
        (("--data", "/", "--threads", "0"), "threads = 0: must be a whole number, 1 … 1024"),
        (("--data", "/", "--host-memory", "some"), "host_memory = some"),
        (("--data", "/", "--allow", "uid:x"), "allow = uid:x"),
        (("--data", "/", "--config", "/nothing.toml"), "/nothing.toml"),
        (("--data", "/", "--socket", "/tmp/" + "x" * 200), "socket path"),
        (("--data", "/", "--grace-ms", "5"), "--private"),
    ],
)
def test_wrong_settings_are_errors_that_name_them(executable, arguments, message, tmp_path):
    if "--socket" not in arguments:
        arguments += ("--socket", tmp_path / "a.sock")
    done = serve(executable, *arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert not (tmp_path / "a.sock").exists()


def test_an_unknown_option_or_key_is_a_usage_error(executable, tmp_path):
    assert serve(executable, "--data", "/", "--treads", "2").returncode == 2
    config = tmp_path / "a.toml"
    config.write_text("threads = 2\ntreads = 2\n")
    done = serve(executable, "--data", "/", "--config", config)
    assert done.returncode == 2 and "line 2: unknown key 'treads'" in done.stderr


def test_a_second_daemon_on_the_same_path_fails_and_the_first_goes_on(executable, root, start_daemon):
    daemon = start_daemon(root)
    done = serve(executable, "--data", root, "--socket", daemon.socket)
    assert done.returncode == 1
    assert f"a daemon listens there already (pid {daemon.pid})" in done.stderr
    assert control(daemon.socket).hello() == daemon.pid


def test_a_daemon_that_was_killed_does_not_stop_the_next(root, start_daemon):
    first = start_daemon(root)
    control(first.socket)
    first.kill()
    assert os.path.exists(first.socket)
    second = start_daemon(root, socket=first.socket)
    wait_until(lambda: control_or_none(first.socket) is not None, 20, "the second daemon")
    assert control(first.socket).hello() == second.pid


def control_or_none(path):
    try:
        return control(path)
    except (ConnectionRefusedError, FileNotFoundError):
        return None


def test_sigterm_ends_it_with_status_0_and_removes_its_sockets(root, start_daemon):
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
        daemon = start_daemon(root)
        control(daemon.socket)
        daemon.process.send_signal(number)
        assert daemon.process.wait(timeout=20) == 0
        assert not os.path.exists(daemon.socket) and not os.path.exists(daemon.socket + ".grpc")
        assert f"stops: the daemon was told to stop ({name})" in log_of(daemon)


def test_sighup_reads_changeable_settings_again(root, start_daemon, tmp_path):
    config = tmp_path / "headrace.toml"
    config.write_text('log_level = "error"\n')
    daemon = start_daemon(root, "--config", str(config))
    control(daemon.socket)
    assert log_of(daemon) == ""
    config.write_text('log_level = "info"\nthreads = 77\n')
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "read" in log_of(daemon), 20, "the reload in the log")
    config.write_text("broken = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "nothing was changed" in log_of(daemon), 20, "the refusal in the log")
    assert control(daemon.socket).request(STATS, {})["decode_threads"] != 77


def test_a_path_outside_the_roots_is_refused_through_links_too(dataset, root, start_daemon, tmp_path):
    inside = tmp_path / "data"
    inside.mkdir()
    os.symlink(dataset, inside / "link")
    daemon = start_daemon(inside)
    for path in (inside / "link", f"{inside}/../{os.path.relpath(dataset, tmp_path)}", dataset):
        with pytest.raises(Refused) as refused:
            Session(daemon.socket, small_spec(path))
        assert refused.value.code == 7, refused.value


def test_another_user_is_refused_unless_allowed(root, start_daemon, tmp_path):
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == 0 and parent != Path("/") and str(parent).startswith("/tmp/"):
            os.chmod(parent, 0o755)
    shutil.copy(REPOSITORY / "tests" / "support" / "handover.py", tmp_path)  # the other user may not look into the repository
    code = "import sys; sys.path.insert(0, sys.argv[1]); from handover import *; print(control(sys.argv[2]).hello())"

    def as_other_user(path, uid, gid):
        return subprocess.run(
            ["python3", "-c", code, str(tmp_path), path],
            capture_output=True, text=True, timeout=60, user=uid, group=gid, extra_groups=[]
        )  # fmt: skip

    closed = start_daemon(root, "--socket-mode", "0666")
    done = as_other_user(closed.socket, 54321, 54321)
    assert "uid 54321 may not use this daemon" in done.stderr, done.stderr
    open_to_some = start_daemon(root, "--allow", "uid:54321", "gid:54322")
    for uid, gid, admitted in ((54321, 5, True), (5, 54322, True), (54322, 54321, False)):
        done = as_other_user(open_to_some.socket, uid, gid)
        assert (done.stdout.strip() == str(open_to_some.pid)) == admitted, (uid, gid, done)


def test_threads_are_named_and_bounded(root, dataset, start_daemon):
    daemon = start_daemon(root, "--threads", "3", "--cold-threads", "1", "--no-grpc")
    sessions = [Session(daemon.socket, small_spec(dataset)) for _ in range(4)]
    assert all(session.next() >= 0 for session in sessions)
    names = [Path(task, "comm").read_text().strip() for task in Path(f"/proc/{daemon.pid}/task").iterdir()]
    assert names.count("headrace") == 1
    assert sorted(name for name in names if name.startswith("hr-decode")) == ["hr-decode-0", "hr-decode-1", "hr-decode-2"]
    assert [name for name in names if name.startswith("hr-cold")] == ["hr-cold-0"]
    assert all(name == "headrace" or name.startswith("hr-") for name in names), names


def test_metrics_listen_on_the_loopback_only(root, start_daemon):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    daemon = start_daemon(root, "--metrics-port", str(port))
    control(daemon.socket)
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
    assert "headrace_sessions 0" in text
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    assert f"0100007F:{port:04X}" in listening and f"00000000:{port:04X}" not in listening


def test_top_shows_sessions_as_table_and_json(executable, root, dataset, start_daemon):
    daemon = start_daemon(root)
    session = Session(daemon.socket, small_spec(dataset))
    session.next()

    def top(*arguments):
        command = [executable, "top", "--socket", daemon.socket, "--once", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    table = top()
    assert table.returncode == 0, table.stderr
    row = next(line.split() for line in table.stdout.splitlines() if line.strip().endswith(dataset))
    assert row[:3] == [str(session.id), str(os.getpid()), "0/1"]
    stats = json.loads(top("--json").stdout)
    assert stats["sessions"][0]["id"] == session.id and stats["pid"] == daemon.pid
    assert set(stats) == set(control(daemon.socket).request(STATS, {}))


def test_top_says_that_nobody_listens(executable, tmp_path):
    done = subprocess.run([executable, "top", "--socket", tmp_path / "no.sock"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "no.sock: start `headrace serve`" in done.stderr


def test_doctor_finds_the_daemon_and_datasets(executable, root, dataset, start_daemon, tmp_path):
    daemon = start_daemon(root)
    control(daemon.socket)
    command = [executable, "doctor", "--socket", daemon.socket]
    done = subprocess.run([*command, dataset], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert re.search(rf"^ok +daemon +headrace .*pid {daemon.pid}", done.stdout, re.M)
    assert re.search(rf"^ok +dataset +{dataset}: 131 samples", done.stdout, re.M)
    assert all(line.startswith(("ok ", "warn ")) for line in done.stdout.splitlines())
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and re.search(r"^FAIL +dataset", done.stdout, re.M)


def spawn_private(executable, descriptors, *arguments):
    """Starts it with these descriptors at these numbers; returns the first process's pid."""
    high = [(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100), number) for fd, number in descriptors]
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in high]
    command = [executable, "serve", "--private", "--listen-fd", "3", *arguments]
    child = os.posix_spawn(executable, command, os.environ, file_actions=actions)
    for fd, _ in high:
        os.close(fd)
    return child


def test_a_private_daemon_detaches_reports_and_ends(executable, dataset, tmp_path):
    address = f"@headrace-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + address[1:])
        listener.listen()
        read_end, write_end = os.pipe()
        child = spawn_private(executable, [(listener.fileno(), 3), (write_end, 4)], "--grace-ms", "0")
        os.close(write_end)
        assert os.waitpid(child, 0)[1] == 0
        assert os.read(read_end, 100) == b""  # closed without a word: it serves
        os.close(read_end)
    connection = Connection(address)
    pid = connection.hello()
    assert pid != child and os.getsid(pid) == pid
    assert Path(f"/proc/{pid}/comm").read_text() == "headrace\n"
    parent = int(re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])
    assert parent not in (os.getpid(), child)
    session = Session(address, small_spec(dataset))
    session.next()
    connection.close()
    session.connection.close()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}") or "Z" in state_of(pid), 20, "the private daemon's end")
    with pytest.raises(ConnectionRefusedError):
        Connection(address)


def state_of(pid):
    try:
        return re.search(r"^State:\s+(\S)", Path(f"/proc/{pid}/status").read_text(), re.M)[1]
    except FileNotFoundError:
        return "Z"


def test_a_private_daemon_says_why_it_cannot_start(executable):
    read_end, write_end = os.pipe()
    with open("/dev/null") as null:
        child = spawn_private(executable, [(null.fileno(), 3), (write_end, 4)])
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as words:
        assert words.read() == "descriptor 3 is not a listening socket"


def test_the_pages_show_every_setting(executable):
    printed = serve(executable, "--print-settings").stdout
    assert printed.count("\n") > 15
    assert printed in (REPOSITORY / "docs" / "operations.md").read_text()


def test_the_systemd_unit_is_valid_and_hardened(executable, tmp_path):
    assert shutil.which("systemd-analyze"), "tools/test.sh installs systemd"
    text = (REPOSITORY / "deploy" / "headrace.service").read_text()
    unit = tmp_path / "headrace.service"
    unit.write_text(text.replace("/usr/bin/headrace", str(executable)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    arguments = re.search(r"^ExecStart=/usr/bin/headrace (.*)$", text, re.M)[1].split()
    assert arguments == ["serve", "--config", "/etc/headrace.toml", "--socket", "/run/headrace/headrace.sock"]


def test_an_open_that_waits_does_not_hold_up_others(root, dataset, start_daemon):
    """The event loop answers while a dataset's opening hangs."""
    daemon = start_daemon(root, "--cold-threads", "2")
    stuck = os.path.join(root, "stuck")
    os.mkdir(stuck)
    try:
        with openings_wait(os.path.join(stuck, "dataset.json")) as somebody_waits:
            connection = Connection(daemon.socket)
            connection.send(OPEN, json.dumps({"spec": small_spec(stuck)}).encode())
            wait_until(somebody_waits, 20, "the opening of the dataset")
            first = control(daemon.socket)
            for _ in range(3):
                assert first.request(STATS, {})["pid"] == daemon.pid
            Session(daemon.socket, small_spec(dataset)).next()
            assert daemon.stop() == 0
    finally:
        shutil.rmtree(stuck)


@pytest.mark.parametrize("niceness", [0, 5, 19])
def test_only_decode_threads_stand_back(root, start_daemon, niceness):
    daemon = start_daemon(root, "--threads", "3", *(["--niceness", str(niceness)] if niceness != 5 else []))

    def nice_by_name():
        threads = {}
        for task in Path(f"/proc/{daemon.pid}/task").iterdir():
            name, fields = re.fullmatch(r"\d+ \((.*)\) (.*)", (task / "stat").read_text().strip()).groups()
            threads[name] = int(fields.split()[16])
        return threads

    own = os.getpriority(os.PRIO_PROCESS, 0)
    decoding = {f"hr-decode-{i}": min(19, own + niceness) for i in range(3)}
    wait_until(lambda: decoding.items() <= nice_by_name().items(), 20, "the threads' niceness")
    assert all(nice == own for name, nice in nice_by_name().items() if not name.startswith("hr-decode"))


def test_a_pipe_in_a_datasets_place_is_refused(root, start_daemon):
    daemon = start_daemon(root)
    folder = os.path.join(root, "pipe")
    os.mkdir(folder)
    os.mkfifo(os.path.join(folder, "dataset.json"))
    try:
        with pytest.raises(headrace.DatasetNotFoundError, match="is not a dataset"):
            headrace.Loader(folder, 1, socket=daemon.socket, timeout=20)
    finally:
        shutil.rmtree(folder)
