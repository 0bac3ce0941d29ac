"""What all commands have in common."""

import os
import signal
import subprocess

import pytest


@pytest.fixture
def run(executable):
    def start(*arguments, **options):
        return subprocess.run([executable, *map(str, arguments)], text=True, stderr=subprocess.PIPE, timeout=60,
                              **{"stdout": subprocess.PIPE, **options})  # fmt: skip

    return start


@pytest.mark.parametrize("command", ["pack", "inspect", "verify", "unpack", "index", "audit", "serve", "top", "doctor"])
def test_help_has_examples(run, command):
    done = run(command, "--help")
    assert done.returncode == 0 and f"\n  headrace {command}" in done.stdout.split("Examples:")[1]


def test_a_command_that_does_not_exist_is_named(run):
    done = run("packk", "a", "b")
    assert done.returncode == 2 and "packk" in done.stderr


@pytest.mark.parametrize("number", ["-1", str(2**64), "1x", "9" * 30])
@pytest.mark.parametrize("option", ["--epoch", "--seed", "--position", "--step"])
def test_a_number_out_of_range_is_refused(run, dataset, option, number):
    done = run("audit", dataset, f"{option}={number}")
    assert done.returncode == 2 and option in done.stderr


@pytest.mark.parametrize("command", ["audit", "inspect"])
def test_what_cannot_be_written_is_a_failure(run, dataset, command):
    with open("/dev/full", "w") as full:
        done = run(command, dataset, stdout=full)
    assert done.returncode == 1 and "No space left on device" in done.stderr


def test_a_missing_index_names_what_makes_it(run, pack, image_folder, tmp_path):
    packed = tmp_path / "dataset"
    pack(image_folder, packed)
    (index,) = packed.glob("*.index")
    index.unlink()
    assert f"`headrace index {packed}`" in run("inspect", packed).stderr
    assert run("index", packed).returncode == 0 and run("inspect", packed).returncode == 0


def test_what_is_no_dataset_says_why(run, image_folder, tmp_path):
    assert "is not a dataset" in run("inspect", image_folder).stderr
    assert "is not a dataset" in run("inspect", "/etc/passwd").stderr
    (tmp_path / "pack.journal").touch()
    assert "run the same `headrace pack` again" in run("inspect", tmp_path).stderr


def test_an_address_space_of_half_a_gigabyte_is_enough_to_verify(run, dataset):
    import resource

    limit = 512 << 20
    done = run("verify", "--threads", 1, dataset, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 0, done.stderr


def test_the_environment_names_the_daemon_for_all_commands(run, start_daemon, dataset):
    daemon = start_daemon(os.path.dirname(dataset))
    environment = {**os.environ, "HEADRACE_SOCKET": str(daemon.socket)}
    assert f"pid {daemon.pid}" in run("top", "--once", env=environment).stdout
    assert f"pid {daemon.pid}, at {daemon.socket}" in run("doctor", env=environment).stdout


def test_doctor_tells_a_daemon_that_hangs_from_none(run, start_daemon, dataset, tmp_path):
    daemon = start_daemon(os.path.dirname(dataset))
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        hung = run("doctor", "--socket", daemon.socket).stdout
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert "does not answer" in hung
    absent = run("doctor", "--socket", tmp_path / "absent.sock").stdout
    assert "headrace serve --socket" in absent
