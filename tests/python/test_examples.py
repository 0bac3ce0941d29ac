"""The examples do what they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def learnable(pack, tmp_path_factory):
    root = tmp_path_factory.mktemp("learnable")
    command = [sys.executable, EXAMPLES / "make_photos.py", root / "photos", "--classes", "4", "--per-class", "40", "--side", "96"]
    subprocess.run(command, check=True, capture_output=True)
    return pack(root / "photos", root / "dataset")


def train(*arguments, launcher=()):
    command = [sys.executable, *launcher, EXAMPLES / "train.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_photos_are_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        command = [sys.executable, EXAMPLES / "make_photos.py", tmp_path / name, "--classes", "3", "--per-class", "2"]
        subprocess.run(command, check=True, capture_output=True)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.jpg"))
    assert len(files) == 6
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_training_learns(learnable):
    done = train(learnable, "--steps", 80, "--size", 32, "--expect-loss-falls")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "at the end of 80 steps" in done.stdout and "img/s" in done.stdout


def test_training_that_learns_nothing_fails_where_it_must_learn(learnable):
    done = train(learnable, "--steps", 20, "--size", 32, "--lr", "0", "--expect-loss-falls")
    assert done.returncode == 1 and "did not fall" in done.stderr


def test_two_ranks_train_together(learnable):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = train(learnable, "--steps", 10, "--size", 32, launcher=launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 2 rank(s)" in done.stdout


def test_a_checkpoint_is_gone_on_from(learnable, tmp_path):
    first = train(learnable, "--steps", 50, "--size", 32, "--checkpoint", tmp_path / "run.pt")
    assert first.returncode == 0, first.stderr
    second = train(learnable, "--steps", 60, "--size", 32, "--checkpoint", tmp_path / "run.pt")
    assert "at the end of 10 steps" in second.stdout, second.stdout + second.stderr
