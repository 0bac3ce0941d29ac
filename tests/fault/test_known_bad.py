"""What a daemon found bad: later runs do not read it again, whatever becomes of the file that says so."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch
from broken_images import break_images, with_second_frame
from headrace_cli import headrace
from image_files import make_image
from processes import Daemon

import headrace.torch as hr

TRANSFORM = [hr.Resize((32, 32))]
SIDE_FILE = "bad_samples.txt"


def make_folder(root, count, broken=()):
    for i in range(count):
        path = root / f"class{i % 2}" / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        make_image(random.Random(i), 80, 96).save(path, quality=90)
        if i in broken:
            path.write_bytes(with_second_frame(path.read_bytes()))
    return root


@pytest.fixture(scope="module")
def all_bad(pack, tmp_path_factory):
    """A dataset of 40 samples that are all bad."""
    root = tmp_path_factory.mktemp("all-bad")
    path = pack(make_folder(root / "images", 40), root / "dataset")
    break_images(path, range(40))
    return Path(path)


@pytest.fixture
def bad(all_bad, tmp_path):
    shutil.copytree(all_bad, tmp_path / "data")
    return tmp_path / "data"


def listed(dataset, **options):
    return [json.loads(line) for line in headrace("bad", "--json", dataset, **options)[0].splitlines()]


def run(daemon, dataset, **arguments):
    """(batches of an epoch or the errors in their places, bytes of samples that the daemon read)"""
    out = []
    arguments = {"batch_size": 8, "return_index": True, "on_bad_sample": "skip", "transform": TRANSFORM, **arguments}
    with hr.DataLoader(dataset, **arguments, socket=daemon.socket) as loader:
        batches = iter(loader)
        for _ in range(len(loader)):
            try:
                out.append([value.clone() for value in next(batches)])
            except hr.BadSampleError as error:
                out.append((str(error), error.sample, error.reason))
        read = loader._link.request(4, {})["bytes_read"]
    return out, read


def same(some, others):
    return len(some) == len(others) and all(
        a == b if isinstance(a, tuple) or isinstance(b, tuple) else all(map(torch.equal, a, b)) for a, b in zip(some, others)
    )


def test_a_later_daemon_reads_none_of_them_and_says_the_same(bad, start_daemon):
    first, read = run(start_daemon(bad), bad, on_bad_sample="fail")
    assert read > 0 and [error[1] for error in first] == [0, 8, 16, 24, 32]
    for policy in ("fail", "skip", "substitute"):
        again, read = run(start_daemon(bad), bad, on_bad_sample=policy)
        assert read == 0
        if policy == "fail":
            assert same(again, first)
        elif policy == "skip":
            assert [len(index) for *_, index in again] == [0] * 5
        else:
            assert [error[1] for error in again] == [0, 8, 16, 24, 32], "there is nothing to substitute"


@pytest.mark.parametrize("policy", ["fail", "skip", "substitute"])
def test_what_is_known_changes_no_batch(pack, start_daemon, tmp_path, policy):
    """Damage that only some crops reach: these files fail where their last row is decoded."""
    path = Path(pack(make_folder(tmp_path / "images", 24, broken={3, 10, 11, 17}), tmp_path / "dataset"))
    broken = {13, 5, 17, 20}  # as samples: one class behind the other
    for transform in ([hr.CenterCrop(16)], [hr.RandomResizedCrop(24, scale=(0.05, 0.9))], TRANSFORM):
        arguments = {"transform": transform, "on_bad_sample": policy}
        before = run(start_daemon(path), path, **arguments)[0]
        after = run(start_daemon(path), path, **arguments)[0]
        assert same(before, after)
        if transform is TRANSFORM:
            errors = {batch[1] for batch in after if isinstance(batch, tuple)}
            assert errors == ({5, 13, 17} if policy == "fail" else set())
        elif len(transform) == 1 and isinstance(transform[0], hr.CenterCrop):
            assert not any(isinstance(batch, tuple) for batch in after) and not (path / SIDE_FILE).exists()
    # All rows of them are known to be bad now; a crop that does not reach the last one is still what it was.
    assert {row["sample"] for row in listed(path)} == broken
    crop = {"transform": [hr.CenterCrop(16)], "on_bad_sample": policy}
    known = run(start_daemon(path), path, **crop)[0]
    (path / SIDE_FILE).unlink()
    assert same(known, run(start_daemon(path), path, **crop)[0])


def test_a_restored_shard_is_read_again(pack, start_daemon, tmp_path):
    path = Path(pack(make_folder(tmp_path / "images", 8), tmp_path / "dataset"))
    (shard,) = path.glob("*.lmdb")
    good = shard.read_bytes()
    break_images(path, [5])
    daemon = start_daemon(path)
    assert len(run(daemon, path)[0][0][-1]) == 7
    shard.write_bytes(good)
    for reader in (daemon, start_daemon(path)):
        assert len(run(reader, path)[0][0][-1]) == 8
    assert listed(path) == []


@pytest.mark.parametrize("kind", ["garbage", "link", "pipe", "folder", "huge", "torn"])
def test_a_hostile_side_file_is_harmless(bad, start_daemon, tmp_path, kind, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    side, victim = bad / SIDE_FILE, tmp_path / "victim"
    victim.write_bytes(b"precious")
    if kind == "garbage":
        side.write_bytes(random.Random(3).randbytes(100_000))
    elif kind == "link":
        side.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(side)
    elif kind == "folder":
        side.mkdir()
    elif kind == "huge":
        side.touch()
        os.truncate(side, 1 << 40)
    else:
        run(start_daemon(bad), bad)
        side.write_bytes(side.read_bytes()[:-20])
    first, read = run(start_daemon(bad), bad, on_bad_sample="fail")
    assert read > 0 and [error[1] for error in first] == [0, 8, 16, 24, 32]
    again, read = run(start_daemon(bad), bad, on_bad_sample="fail")
    assert read == 0 and same(first, again)
    assert victim.read_bytes() == b"precious"
    in_state = kind in ("link", "pipe", "folder")
    assert [path.name for path in (tmp_path / "state").rglob("*.txt")] == [f"{hash_of(bad)}.txt"] * in_state
    assert len(listed(bad)) == 40


def hash_of(dataset):
    return json.loads((dataset / "dataset.json").read_text())["hash"]


def test_a_folder_that_may_not_be_written(bad, executable, tmp_path):
    """The daemon keeps what it finds in its own folder; as root the test has to be somebody else for that."""
    state = tmp_path / "state"
    state.mkdir()
    identity = {}
    if os.getuid() == 0:
        os.chown(state, 54321, 54321)
        identity = {"user": 54321, "group": 54321, "extra_groups": []}
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/"):
                os.chmod(folder, 0o755)
        copy = tmp_path / "copy" / "headrace" / "bin" / "headrace"  # it may not look into the repository
        copy.parent.mkdir(parents=True)
        shutil.copy(executable, copy)
        libraries = Path(executable).parents[2] / "headrace.libs"  # of an installed wheel
        if libraries.is_dir():
            shutil.copytree(libraries, tmp_path / "copy" / "headrace.libs")
    else:
        copy = executable
        bad.chmod(0o555)
    before = sorted(path.name for path in bad.iterdir())
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    if identity:
        os.chown(sockets, 54321, 54321)
    environment = {**os.environ, "STATE_DIRECTORY": str(state)}
    results = []
    try:
        for number in range(2):
            daemon = Daemon(copy, bad, sockets / f"{number}.sock", "--allow", "uid:0", env=environment, **identity)
            try:
                results.append(run(daemon, bad, on_bad_sample="fail"))
            finally:
                daemon.end()
        assert sorted(path.name for path in bad.iterdir()) == before
        assert [path.name for path in state.iterdir()] == [f"{hash_of(bad)}.txt"]
        assert results[0][1] > 0 and results[1][1] == 0 and same(results[0][0], results[1][0])
        assert len(listed(bad, env=environment)) == 40
        assert listed(bad, env={**environment, "STATE_DIRECTORY": "/nowhere"}) == []
    finally:
        bad.chmod(0o755)


def test_kill_9_while_it_is_written_loses_lines_and_invents_none(bad, executable, tmp_path):
    rng = random.Random(7)
    for number in range(12):
        daemon = Daemon(executable, bad, tmp_path / f"{number}.sock", "--threads", "2")
        with hr.DataLoader(bad, 1, transform=TRANSFORM, on_bad_sample="skip", socket=daemon.socket, timeout=60) as loader:
            assert len(next(iter(loader))[1]) == 0
            time.sleep(rng.random() * 0.004)
            daemon.kill()
        daemon.end()
        known = {row["sample"]: row["reason"] for row in listed(bad)}
        if number % 4 == 3:
            (bad / SIDE_FILE).unlink()
        else:
            os.truncate(bad / SIDE_FILE, (bad / SIDE_FILE).stat().st_size - rng.randrange(80))  # what a power cut may leave
        assert all("wrong hash" in reason for reason in known.values()) and len(known) >= 1
    for _ in range(2):
        daemon = Daemon(executable, bad, tmp_path / "last.sock")
        whole = run(daemon, bad)
        daemon.end()
    assert whole[1] == 0 and [row["sample"] for row in listed(bad)] == list(range(40))
    assert sorted(path.name for path in bad.iterdir() if "bad" in path.name) == [SIDE_FILE]


def test_two_daemons_at_once(bad, start_daemon):
    both = [start_daemon(bad), start_daemon(bad)]
    loaders = [hr.DataLoader(bad, 4, transform=TRANSFORM, on_bad_sample="skip", socket=daemon.socket) for daemon in both]
    for batches in zip(*loaders):
        assert [len(labels) for _, labels in batches] == [0, 0]
    for loader in loaders:
        loader.close()
    lines = [line for line in (bad / SIDE_FILE).read_bytes().split(b"\n") if line]
    assert len(set(lines)) == 40 and 40 <= len(lines) <= 80
    assert run(start_daemon(bad), bad)[1] == 0


def test_the_list_of_bad_and_damaged_samples(pack, start_daemon, tmp_path):
    folder = make_folder(tmp_path / "images", 12)
    cut = folder / "class0" / "002.jpg"
    cut.write_bytes(cut.read_bytes()[:-300])  # libjpeg repairs it
    (folder / "class0" / "zz.jpg").write_bytes(b"no image")
    path = Path(pack(folder, tmp_path / "dataset", "--check"))
    out, errors = headrace("bad", path)
    assert "1 damaged" in out and "0 known to be bad" in out and "1 files were rejected" in out and not errors
    (damaged,) = listed(path)
    assert (damaged["name"], damaged["verdict"], damaged["shard"]) == ("class0/002.jpg", "damaged", 0)
    reason = next(line for line in (path / "report.csv").read_text().splitlines() if "002.jpg" in line)
    assert damaged["reason"] in reason and damaged["reason"]
    break_images(path, [7])
    loader = hr.DataLoader(path, 12, transform=TRANSFORM, return_index=True)
    with pytest.raises(hr.BadSampleError) as error:
        next(iter(loader))
    rows = listed(path)
    assert [(row["sample"], row["verdict"]) for row in rows] == [(damaged["sample"], "damaged"), (7, "bad")]
    assert rows[1]["name"] == error.value.name and rows[1]["reason"] == error.value.reason
    out, _ = headrace("bad", path)
    assert rows[1]["name"] in out and rows[1]["reason"] in out and "1 known to be bad, 1 damaged" in out
    headrace("pack", "--check", "--overwrite", folder, path)
    assert listed(path) == [damaged] and not (path / SIDE_FILE).exists()


def test_the_commands_errors(tmp_path):
    assert "no dataset.json" in headrace("bad", tmp_path, code=1)[1]
    headrace("bad", code=2)
    headrace("bad", "--colour", tmp_path, code=2)
    assert "headrace bad /data/train" in headrace("bad", "--help")[0]


def test_a_side_file_that_cannot_be_read_is_named(bad):
    (bad / SIDE_FILE).mkdir()
    out, errors = headrace("bad", bad)
    assert "0 known to be bad" in out and SIDE_FILE in errors
