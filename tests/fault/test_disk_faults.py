"""What happens to a dataset's files while they are served: the damaged samples are named, everything else goes on."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from headrace_cli import headrace as command
from processes import Daemon, wait_until

import headrace

DAMAGED = range(100, 131)  # far behind what two rings of four batches of ten have read
TRANSFORM = [headrace.Resize((32, 32))]


def load(dataset, daemon, **arguments):
    return headrace.Loader(dataset, 10, transform=TRANSFORM, return_index=True, dtype="uint8", socket=daemon.socket, **arguments)


def rest_of(iterator):
    """{sample: pixels} of the batches that come, and the errors of those that do not."""
    got, errors = {}, []
    while True:
        try:
            images, _, index = next(iterator)
            got.update(zip(index.tolist(), (image.tobytes() for image in images)))
        except headrace.BadSampleError as error:
            errors.append(error)
        except StopIteration:
            return got, errors


@pytest.fixture
def served(dataset, start_daemon, tmp_path):
    """A dataset of its own, and its daemon."""
    path = tmp_path / "data" / "dataset"
    shutil.copytree(dataset, path)
    return path, start_daemon(tmp_path / "data", "--threads", "2")


@pytest.fixture
def whole(served):
    """{sample: pixels}, as a daemon gives them that is gone before the fault."""
    path, _ = served
    with headrace.Loader(path, 10, transform=TRANSFORM, return_index=True, dtype="uint8") as loader:
        return rest_of(iter(loader))[0]


def places(path, samples):
    """(begin, end) of the images of samples in the shard."""
    with headrace.Loader(path, 10, transform=TRANSFORM) as loader:
        images = [loader.dataset[sample][0] for sample in samples]
    data = (path / "00000.lmdb").read_bytes()
    return [(data.index(image), data.index(image) + len(image)) for image in images]


def truncate(path):
    """Returns the samples whose bytes are gone. LMDB keeps small values and large ones apart, so a few come earlier."""
    begin = min(begin for begin, _ in places(path, DAMAGED))
    lost = [sample for sample, (_, end) in enumerate(places(path, range(131))) if end > begin]
    os.truncate(path / "00000.lmdb", begin)
    return lost


def flip_bits(path):
    chance = random.Random(2)
    with open(path / "00000.lmdb", "r+b") as shard:
        for begin, end in places(path, DAMAGED):
            at = chance.randrange(begin, end)
            shard.seek(at)
            byte = shard.read(1)[0]
            shard.seek(at)
            shard.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return list(DAMAGED)


@pytest.mark.parametrize("fault", [truncate, flip_bits])
def test_damage_while_serving_is_named_sample_by_sample_and_the_others_are_whole(served, whole, fault):
    path, daemon = served
    with load(path, daemon) as failing, load(path, daemon, on_bad_sample="skip") as skipping:
        iterators = [iter(failing), iter(skipping)]
        got = {}
        for iterator in iterators:
            images, _, index = next(iterator)
            got.update(zip(index.tolist(), (image.tobytes() for image in images)))
        full = lambda s: s["slots_ready"] == s["slots"] == 4  # noqa: E731
        wait_until(lambda: all(map(full, failing._link.request(4, {})["sessions"])), 20, "full rings")
        lost = fault(path)
        assert set(DAMAGED) <= set(lost) and min(lost) >= 50
        bad_batches = sorted({sample // 10 for sample in lost})
        rest, errors = rest_of(iterators[0])
        assert {**got, **rest} == {sample: pixels for sample, pixels in whole.items() if sample // 10 not in bad_batches}
        assert [error.sample for error in errors] == [min(s for s in lost if s // 10 == batch) for batch in bad_batches]
        for error in errors:
            assert error.shard == 0 and error.reason and str(path) in str(error) and error.name in str(error), error
        rest, errors = rest_of(iterators[1])
        assert not errors and sorted({**got, **rest}) == sorted(set(range(131)) - set(lost))
        assert skipping.stats()["bad_samples"] == len(lost)
    assert daemon.process.poll() is None
    told = "".join(command("verify", "--quiet", path, code=1))
    assert "00000.lmdb" in told, told


def remove(path, other):
    shutil.rmtree(path)


def replace(path, other):
    path.rename(path.parent.parent / "old")
    shutil.copytree(other, path)


@pytest.mark.parametrize("fault, message", [(remove, "does not exist"), (replace, None)])
def test_a_dataset_that_goes_is_served_to_its_end(served, whole, pack, image_folder, tmp_path, fault, message):
    path, daemon = served
    shutil.copytree(image_folder / "class03", tmp_path / "few" / "class03")
    other = pack(tmp_path / "few", tmp_path / "other")
    with load(path, daemon) as loader:
        iterator = iter(loader)
        images, _, index = next(iterator)
        got = dict(zip(index.tolist(), (image.tobytes() for image in images)))
        fault(path, other)
        rest, errors = rest_of(iterator)
        assert not errors and {**got, **rest} == whole
        if message:
            with pytest.raises(FileNotFoundError, match=message):
                load(path, daemon)
        else:
            with load(path, daemon) as again:
                assert len(again.dataset) == 23
    assert daemon.process.poll() is None


def test_a_disk_that_is_gone_is_named_and_what_is_open_is_served(dataset, executable, tmp_path):
    """Unmounted below the daemon, as when a network disk is taken away."""
    if os.geteuid() != 0:
        return  # only root may mount; the test above covers the rest
    code = """
import os, shutil, subprocess, sys
sys.path.insert(0, sys.argv[4])
from processes import Daemon
import headrace
dataset, executable, folder = sys.argv[1:4]
disk = folder + "/disk"
os.mkdir(disk)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", disk], check=True)
shutil.copytree(dataset, disk + "/dataset")
daemon = Daemon(executable, disk, folder + "/daemon.sock")
load = lambda: headrace.Loader(disk + "/dataset", 10, transform=[headrace.Resize((32, 32))], return_index=True,
                               socket=daemon.socket)
loader = load()
iterator = iter(loader)
got = next(iterator)[-1].tolist()
subprocess.run(["umount", "--lazy", disk], check=True)
got += [i for *_, index in iterator for i in index.tolist()]
assert got == list(range(131))
try:
    load()
except (FileNotFoundError, PermissionError) as error:
    assert disk in str(error), error
    print("named", daemon.stop())
"""
    support = os.path.join(os.path.dirname(__file__), "..", "support")
    program = ["unshare", "--mount", sys.executable, "-c", code, dataset, executable, str(tmp_path), support]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stdout == "named 0\n", done.stdout + done.stderr


# Reads of shards fail while the file $BROKEN is there.
BROKEN_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_broken(int fd) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return access(getenv("BROKEN"), F_OK) == 0 && readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".lmdb");
}
ssize_t pread(int fd, void *data, size_t size, off_t at) {
  static ssize_t (*real)(int, void *, size_t, off_t);
  if (!real) real = dlsym(RTLD_NEXT, "pread");
  if (!is_broken(fd)) return real(fd, data, size, at);
  errno = EIO;
  return -1;
}
ssize_t pread64(int fd, void *data, size_t size, off_t at) { return pread(fd, data, size, at); }
"""


def test_reads_that_fail_are_named_and_come_again_with_the_disk(dataset, executable, tmp_path, monkeypatch):
    (tmp_path / "disk.c").write_text(BROKEN_DISK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "disk.so", tmp_path / "disk.c"], check=True, timeout=60)
    monkeypatch.setenv("BROKEN", str(tmp_path / "broken"))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "disk.so"))
    daemon = Daemon(executable, os.path.dirname(dataset), tmp_path / "daemon.sock")
    monkeypatch.delenv("LD_PRELOAD")
    try:
        with load(dataset, daemon) as loader:
            whole = rest_of(iter(loader))
            (tmp_path / "broken").touch()
            loader.set_epoch(5)  # not what is ready already
            got, errors = rest_of(iter(loader))
            assert not got and [error.sample for error in errors] == list(range(0, 131, 10))
            for error in errors:
                assert "00000.lmdb: Input/output error" in error.reason, error  # its name lies there, too
            (tmp_path / "broken").unlink()
            loader.set_epoch(9)
            assert rest_of(iter(loader)) == whole
    finally:
        daemon.end()


def test_a_description_of_another_version_says_both_versions(served):
    path, daemon = served
    description = json.loads((path / "dataset.json").read_text())
    (path / "dataset.json").write_text(json.dumps({**description, "version": description["version"] + 1}))
    with pytest.raises(headrace.DataLossError, match=r"dataset\.json has version 2; this program reads version 1"):
        load(path, daemon)
