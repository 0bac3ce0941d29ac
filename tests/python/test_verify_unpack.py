"""`headrace verify`, `unpack`, `index`, `inspect` and `audit` on good and on damaged datasets."""

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from headrace_cli import dataset_files, executable, headrace  # noqa: E402
from image_files import fill_folder  # noqa: E402


@pytest.fixture
def packed(tmp_path):
    """(dataset, {name: bytes}): 60 samples in several shards."""
    files = fill_folder(tmp_path / "src", 5, 12)
    headrace("pack", tmp_path / "src", tmp_path / "dst", "--shard-size", "100kB")
    return tmp_path / "dst", files


def damage(dataset, needle, at=None):
    """Flips a byte in the middle of `needle`, wherever a shard holds it."""
    for path in sorted(Path(dataset).glob("*.lmdb")):
        data = bytearray(path.read_bytes())
        place = data.find(needle)
        if place >= 0:
            data[place + (len(needle) // 2 if at is None else at)] ^= 0x10
            path.write_bytes(data)
            return
    raise AssertionError("no shard holds these bytes")


def test_a_good_dataset_is_verified(packed):
    dataset, _ = packed
    assert "good: 60 samples" in headrace("verify", dataset)[0]
    assert "good: 60 samples" in headrace("verify", "--no-decode", "--threads", 1, dataset)[0]


def test_each_damaged_sample_is_named(packed):
    dataset, files = packed
    bad = [sorted(files)[i] for i in (0, 17, 59)]
    for name in bad:
        damage(dataset, files[name])
    out, _ = headrace("verify", dataset, code=1)
    named = [line for line in out.splitlines() if ", sample " in line]
    assert [name in line for name, line in zip(bad, named)] == [True] * 3, out
    assert len(named) == 3
    assert "3 bad samples" in out


@pytest.mark.parametrize("file", ["00000.lmdb", "00001.index", "dataset.json"])
@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
def test_files_that_are_missing_or_cut_are_named(packed, file, how):
    dataset, _ = packed
    path = dataset / file
    if how == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if how == "empty" else path.stat().st_size - 3)
    for command in (["verify"], ["inspect"], ["unpack"], ["audit"]):
        extra = [dataset.parent / "out"] if command == ["unpack"] else []
        _, errors = headrace(*command, dataset, *extra, code=1)
        assert file in errors or how == "missing" and "is not a dataset" in errors


def test_images_that_do_not_decode_are_named(tmp_path):
    files = fill_folder(tmp_path / "src", 2, 10)  # number 9 and 19 are PNG
    name = next(name for name in files if name.endswith(".png"))
    (tmp_path / "src" / name).write_bytes(files[name][: len(files[name]) // 2])
    headrace("pack", tmp_path / "src", tmp_path / "dst")
    out, _ = headrace("verify", tmp_path / "dst", code=1)
    assert name in out and "1 bad samples" in out
    assert "good" in headrace("verify", "--no-decode", tmp_path / "dst")[0]


def test_unpack_gives_the_files_back(packed, tmp_path):
    dataset, files = packed
    out, _ = headrace("unpack", dataset, tmp_path / "out")
    transcoded = {line.split(" ", 1)[1] for line in out.splitlines() if line.startswith("transcoded ")}
    assert len(transcoded) == 6  # the progressive ones
    back = {str(path.relative_to(tmp_path / "out")): path.read_bytes()
            for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert set(back) == set(files)
    for name, data in files.items():
        if name in transcoded:
            before, after = (Image.open(io.BytesIO(image)) for image in (data, back[name]))
            assert before.tobytes() == after.tobytes()
        else:
            assert back[name] == data
    assert "60 were there already" in headrace("unpack", dataset, tmp_path / "out")[0]


def test_unpack_reports_damaged_samples_and_writes_the_others(packed, tmp_path):
    dataset, files = packed
    name = sorted(files)[20]
    damage(dataset, files[name])
    out, errors = headrace("unpack", dataset, tmp_path / "out", code=1)
    assert "1 FAILED" in out and "sample 20" in errors
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 59
    assert not (tmp_path / "out" / name).exists()


def test_lost_and_damaged_indexes_are_made_anew(packed):
    dataset, _ = packed
    before = dataset_files(dataset)
    (dataset / "00000.index").unlink()
    (dataset / "00001.index").write_bytes(b"nonsense")
    headrace("verify", dataset, code=1)
    headrace("index", dataset)
    assert dataset_files(dataset) == before


def test_index_killed_at_any_moment_leaves_a_dataset_that_opens(tmp_path):
    files = fill_folder(tmp_path / "src", 3, 10)
    many = sorted(files)
    for i in range(900):
        name = many[i % len(many)]
        os.link(tmp_path / "src" / name, tmp_path / "src" / f"{name[:7]}/copy{i:05}.jpg")
    dataset = tmp_path / "dst"
    headrace("pack", tmp_path / "src", dataset, "--shard-size", "300kB", "--entry-interval", 0)
    headrace("pack", tmp_path / "src", tmp_path / "wanted", "--shard-size", "300kB", "--entry-interval", 4)
    command = [executable(), "index", str(dataset), "--entry-interval", "4", "--threads", "1"]
    rng = random.Random(3)
    kills = mixed = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert process.wait(timeout=rng.uniform(0.005, 0.02 + kills / 100)) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
        out, _ = headrace("inspect", dataset)
        mixed += "none in" in out and "one per 4 MCUs in" in out
    assert kills >= 3 and mixed >= 1, (kills, mixed)
    wanted = dataset_files(tmp_path / "wanted")
    made = dataset_files(dataset)
    assert made.keys() == wanted.keys()
    assert [name for name in wanted if made[name] != wanted[name]] == ["dataset.json"]  # how it was packed
    assert "good" in headrace("verify", dataset)[0]


def test_a_damaged_row_is_found_and_index_repairs_it(packed):
    dataset, _ = packed
    path = dataset / "00000.index"
    data = bytearray(path.read_bytes())
    data[128 + 3 * 64 + 2 * 128 + 60] ^= 1  # sample 2
    path.write_bytes(data)
    out, _ = headrace("verify", dataset, code=1)
    assert "shard 0, sample 2" in out and "1 bad samples" in out
    assert "headrace index" in headrace("inspect", dataset, code=1)[0]
    headrace("index", dataset)
    headrace("verify", dataset)


def test_inspect_counts_what_is_there(packed):
    dataset, files = packed
    out, _ = headrace("inspect", "--samples", 3, dataset)
    description = json.loads((dataset / "dataset.json").read_text())
    assert description["hash"] in out
    assert "samples   60" in out and "classes   5" in out
    counts = {line.split()[0]: int(line.split()[1]) for line in out.splitlines() if line.strip().endswith("#")
              and line.split()[0] in ("grey", "4:4:4", "4:2:0", "4:2:2")}
    assert counts["grey"] == 6  # every tenth, from number 6 on
    assert sum(counts.values()) == 54  # without the PNGs
    for name in sorted(files)[:3]:
        assert name in out
    assert sorted(files)[3] not in out


def test_audit_prints_what_a_step_holds(packed):
    dataset, files = packed
    arguments = ["--batch-size", 8, "--shuffle", "--seed", 7, "--epoch", 2]
    steps = [json.loads(headrace("audit", dataset, *arguments, "--step", step)[0]) for step in range(8)]
    assert [len(step) for step in steps] == [8] * 7 + [4]
    samples = [entry["sample"] for step in steps for entry in step]
    assert sorted(samples) == list(range(60)) and samples != sorted(samples)
    for entry in steps[0]:
        assert entry["name"] == sorted(files)[entry["sample"]]
        assert entry["label"] == int(entry["name"][5:7])
        assert len(entry["crop"]) == 4 and isinstance(entry["flip"], bool)
    spec = {"batch_size": 8, "shuffle": True, "seed": 7, "transform": [
        {"name": "RandomResizedCrop", "size": 224}, {"name": "RandomHorizontalFlip"}, {"name": "Normalize"}]}
    same = headrace("audit", dataset, "--spec", json.dumps(spec), "--epoch", 2, "--step", 3)[0]
    assert json.loads(same) == steps[3]
    assert "8 steps" in headrace("audit", dataset, *arguments, "--step", 8, code=1)[1]


def test_audit_names_what_is_wrong_with_its_options(packed):
    dataset, _ = packed
    assert "--transform" in headrace("audit", dataset, "--transform", "nonsense", code=1)[1]
    assert "--spec" in headrace("audit", dataset, "--spec", "{}", "--seed", 1, code=1)[1]
    assert "colour" in headrace("audit", dataset, "--spec", '{"batch_size": 1, "colour": 2}', code=1)[1]
