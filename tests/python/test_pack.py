"""`headrace pack` from outside: odd folders, lists, kills, full disks, memory, and what LMDB itself says of the result."""

import csv
import io
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import lmdb
import pytest
from PIL import Image, ImageOps

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from headrace_cli import dataset_files, executable, headrace, report  # noqa: E402
from image_files import encode, fill_folder, make_image  # noqa: E402


def jpeg(seed, width=40, height=30):
    return encode(make_image(random.Random(seed), width, height), 0)[0]


def write(root, files):
    """Makes the files of {name: bytes} below root; names may be bytes."""
    for name, data in files.items():
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def read_lmdb(path):
    """Every sample of a dataset as {field: bytes}, by the ordinary LMDB binding and dataset.json alone."""
    description = json.loads((Path(path) / "dataset.json").read_text(encoding="utf-8"))
    fields = [field["name"] for field in description["fields"]]
    samples = []
    for number, shard in enumerate(description["shards"]):
        file = str(Path(path) / f"{number:05}.lmdb")
        assert os.path.getsize(file) == shard["lmdb_bytes"]
        with lmdb.open(file, subdir=False, readonly=True, lock=False, max_dbs=len(fields)) as env:
            with env.begin() as txn:
                columns = {}
                for field in fields:
                    database = env.open_db(field.encode(), txn, create=False)
                    with txn.cursor(database) as cursor:
                        rows = list(cursor)
                    keys = [struct.unpack(">Q", key)[0] for key, _ in rows]
                    assert keys == list(range(len(samples), len(samples) + shard["samples"]))
                    columns[field] = [bytes(value) for _, value in rows]
                samples += [dict(zip(fields, values)) for values in zip(*(columns[field] for field in fields))]
    assert len(samples) == description["samples"]
    return description, samples


def int64(data):
    return struct.unpack("<q", data)[0]


def test_an_image_folder_is_read_back_by_the_ordinary_lmdb_binding(tmp_path):
    files = fill_folder(tmp_path / "src", 5, 12)
    out, _ = headrace("pack", tmp_path / "src", tmp_path / "dst", "--shard-size", "100kB", "--keep-bytes")
    assert "60" in out
    description, samples = read_lmdb(tmp_path / "dst")
    assert len(description["shards"]) > 1
    assert description["classes"] == [f"class{i:02}" for i in range(5)]
    assert [field["name"] for field in description["fields"]] == ["image", "label", "name"]
    names = sorted(files)
    assert [sample["name"].decode() for sample in samples] == names
    for name, sample in zip(names, samples):
        assert sample["image"] == files[name]
        assert int64(sample["label"]) == int(name[5:7])


def test_progressive_images_are_transcoded_to_the_same_pixels_and_metadata(tmp_path):
    files = fill_folder(tmp_path / "src", 5, 12)
    data = os.environ.get("HEADRACE_TEST_DATA", Path(__file__).parents[3] / "shared/data")
    for path in Path(data).glob("odd/*/*.jpg"):  # where the test images are
        if path.is_file():
            files[f"odd/{path.parent.name}_{path.name}"] = path.read_bytes()
    write(tmp_path / "src", files)
    out, _ = headrace("pack", tmp_path / "src", tmp_path / "dst", "--check")
    named = {name for name, (verdict, _) in report(tmp_path / "dst").items() if verdict == "transcoded"}
    assert len(named) >= 5 and f"transcoded  {len(named)} to baseline" in out
    for sample in read_lmdb(tmp_path / "dst")[1]:
        name, packed = sample["name"].decode(), sample["image"]
        if name not in named:
            assert packed == files[name], name
            continue
        before, after = (Image.open(io.BytesIO(data)) for data in (files[name], packed))
        assert after.tobytes() == before.tobytes() and after.mode == before.mode, name
        assert not after.info.get("progressive") and after.getexif() == before.getexif(), name
        left_out = {"progressive", "progression"}
        assert {k: v for k, v in after.info.items() if k not in left_out} == {
            k: v for k, v in before.info.items() if k not in left_out}, name
        assert ImageOps.exif_transpose(after).tobytes() == ImageOps.exif_transpose(before).tobytes(), name
    assert f"{len(named)} images were transcoded" in headrace("inspect", tmp_path / "dst")[0]
    headrace("pack", tmp_path / "src", tmp_path / "kept", "--keep-bytes")
    kept = read_lmdb(tmp_path / "kept")[1]
    assert all(sample["image"] == files[sample["name"].decode()] for sample in kept)
    assert "transcoded" not in headrace("inspect", tmp_path / "kept")[0]


def test_samples_and_labels_are_those_of_torchvisions_image_folder(tmp_path):
    datasets = pytest.importorskip("torchvision.datasets")
    write(tmp_path / "src", {name: jpeg(i) for i, name in enumerate(
        ["b/z.jpg", "b/a.jpg", "b/x/1.jpg", "b/x-y/2.jpg", "b/x/deep/3.jpg", "B/4.jpg", "ä/5.jpg", "a b/6.jpg"])})
    headrace("pack", tmp_path / "src", tmp_path / "dst")
    reference = datasets.ImageFolder(tmp_path / "src")
    description, samples = read_lmdb(tmp_path / "dst")
    assert description["classes"] == reference.classes
    assert [(sample["name"].decode(), int64(sample["label"])) for sample in samples] == [
        (os.path.relpath(path, tmp_path / "src"), label) for path, label in reference.samples
    ]


def test_threads_change_no_byte(tmp_path):
    fill_folder(tmp_path / "src", 7, 30)
    results = []
    for threads in (1, 4):
        dst = tmp_path / f"dst{threads}"
        headrace("pack", tmp_path / "src", dst, "--threads", threads, "--shard-size", "200kB")
        results.append(dataset_files(dst))
    assert results[0] == results[1]


def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(tmp_path):
    rng = random.Random(11)
    files = fill_folder(tmp_path / "src", 3, 30)
    write(tmp_path / "src", {f"class01/{i:05}.txt": b"no image" for i in range(0, 90, 7)})
    many = sorted(files)
    for i in range(1200):  # enough to be killed in the middle; few files to make
        name = many[i % len(many)]
        os.link(tmp_path / "src" / name, tmp_path / "src" / f"{name[:7]}/copy{i:05}.jpg")
    command = [executable(), "pack", str(tmp_path / "src"), str(tmp_path / "dst"), "--shard-size", "500kB"]
    begin = time.monotonic()
    headrace("pack", tmp_path / "src", tmp_path / "whole", "--shard-size", "500kB")
    whole_seconds = time.monotonic() - begin
    kills = 0
    while True:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            # Short at first, so that many moments are met; long in the end, so that it ends.
            _, errors = process.communicate(timeout=whole_seconds * rng.uniform(0.02, 0.2 + kills / 40))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            finished = (tmp_path / "dst" / "dataset.json").exists()
            headrace("inspect", tmp_path / "dst", code=0 if finished else 1)
            if not finished:
                continue
            headrace("verify", "--quiet", tmp_path / "dst")
            (tmp_path / "dst" / "pack.journal").unlink(missing_ok=True)
        else:
            assert process.returncode == 0, errors
        break
    assert kills >= 3
    assert dataset_files(tmp_path / "dst") == dataset_files(tmp_path / "whole")


def test_ctrl_c_ends_it_and_says_that_the_same_command_goes_on(tmp_path):
    files = fill_folder(tmp_path / "src", 2, 4)
    first = sorted(files)[0]
    for i in range(5000):
        os.link(tmp_path / "src" / first, tmp_path / "src" / f"class00/copy{i:05}.jpg")
    command = [executable(), "pack", str(tmp_path / "src"), str(tmp_path / "dst"), "--shard-size", "500kB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "dst" / "pack.journal"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 1):  # a shard is finished
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the same command goes on" in errors
    assert not (tmp_path / "dst" / "dataset.json").exists()
    out, _ = headrace("pack", tmp_path / "src", tmp_path / "dst", "--shard-size", "500kB")
    assert "from the run before" in out
    assert json.loads((tmp_path / "dst" / "dataset.json").read_text())["samples"] == 5008


def test_odd_names_and_links(tmp_path):
    src = tmp_path / "src"
    odd = ["a,b.jpg", 'it\'s "quoted".jpg', "two\nlines.jpg", "tab\there.jpg", "写真_фото.jpg", "🐟", "x" * 251 + ".jpg",
           "-rf.jpg", "back\\slash.jpg", " spaces .jpg", "50%off#1&2$HOME*.jpg", b"latin\xe9.jpg", "no_extension"]
    deep = "/".join(["d" * 200] * 8) + "/deep.jpg"
    write(src, {os.fsencode("cats/") + os.fsencode(name): jpeg(i) for i, name in enumerate(odd)})
    write(src, {f"cats/{deep}": jpeg(100), "dogs/.hidden.jpg": jpeg(1), ".hidden/1.jpg": jpeg(2), "README": b"hello",
                "dogs/new\nline,text": b"no image"})
    (src / "empty").mkdir()
    (src / "dogs" / "good_link.jpg").symlink_to("../cats/a,b.jpg")
    (src / "dogs" / "dangling.jpg").symlink_to("nowhere")
    (src / "dogs" / "self").symlink_to("self")
    (src / "dogs" / "loop").symlink_to("..")
    (src / "dogs" / "cats").symlink_to("../cats")
    os.mkfifo(src / "dogs" / "pipe.jpg")
    out, _ = headrace("pack", src, tmp_path / "dst", timeout=60)
    description, samples = read_lmdb(tmp_path / "dst")
    assert description["classes"] == ["cats", "dogs", "empty"]
    names = {sample["name"]: sample for sample in samples}
    assert set(names) == {b"cats/" + os.fsencode(name) for name in odd} | {f"cats/{deep}".encode(), b"dogs/good_link.jpg"}
    assert names[b"dogs/good_link.jpg"]["image"] == jpeg(0)
    assert int64(names[b"dogs/good_link.jpg"]["label"]) == 1
    lines = report(tmp_path / "dst")
    assert {name: verdict for name, (verdict, _) in lines.items()} == {
        "README": "skipped", "dogs/dangling.jpg": "skipped", "dogs/self": "skipped", "dogs/pipe.jpg": "skipped",
        "dogs/loop": "warning", "dogs/cats": "warning", "dogs/new\nline,text": "rejected", "empty": "warning"}
    assert "beside the class folders" in lines["README"][1]
    assert "no sample" in lines["empty"][1]
    headrace("unpack", tmp_path / "dst", tmp_path / "out")
    for name, sample in names.items():
        assert Path(os.fsdecode(os.path.join(os.fsencode(tmp_path / "out"), name))).read_bytes() == sample["image"]


def test_a_flat_folder_has_no_labels(tmp_path):
    write(tmp_path / "src", {f"{i}.jpg": jpeg(i) for i in range(5)})
    headrace("pack", tmp_path / "src", tmp_path / "dst")
    description, samples = read_lmdb(tmp_path / "dst")
    assert description["classes"] == []
    assert [set(sample) for sample in samples] == [{"image", "name"}] * 5


def test_the_columns_of_a_list_become_fields(tmp_path):
    write(tmp_path / "photos", {f"{i}.jpg": jpeg(i) for i in range(4)})
    absolute = str(tmp_path / "photos" / "3.jpg")
    rows = [["path", "label", "width", "score", "remark"],
            ["../photos/0.jpg", "dog", "-5", "1", "plain"],
            ["../photos/1.jpg", "cat", str(2**62), "2.5e-3", 'with "quotes", commas\nand lines'],
            [absolute, "dog", "0", "-inf", ""],
            ["../photos/0.jpg", "ant", "7", "1e300", "é" * 3000],
            ["../photos/none.jpg", "ant", "7", "1", "missing"]]
    (tmp_path / "lists").mkdir()
    with open(tmp_path / "lists" / "list.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    headrace("pack", "--list", tmp_path / "lists" / "list.csv", tmp_path / "dst")
    description, samples = read_lmdb(tmp_path / "dst")
    assert [(field["name"], field["kind"]) for field in description["fields"]] == [
        ("image", "image"), ("label", "int64"), ("name", "text"), ("width", "int64"), ("score", "float64"), ("remark", "text")]
    assert description["classes"] == ["ant", "cat", "dog"]
    assert [int64(sample["label"]) for sample in samples] == [2, 1, 2, 0]
    assert [sample["name"].decode() for sample in samples] == [row[0] for row in rows[1:5]]
    assert [int64(sample["width"]) for sample in samples] == [-5, 2**62, 0, 7]
    assert [struct.unpack("<d", sample["score"])[0] for sample in samples] == [1.0, 2.5e-3, float("-inf"), 1e300]
    assert [sample["remark"].decode() for sample in samples] == [row[4] for row in rows[1:5]]
    assert samples[0]["image"] == samples[3]["image"] == jpeg(0)
    assert list(report(tmp_path / "dst")) == ["../photos/none.jpg"]


def test_integer_labels_stay_as_they_are(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(1), "list.csv": b"path,label\na.jpg,-3\na.jpg,1000000\n"})
    headrace("pack", "--list", tmp_path / "list.csv", tmp_path / "dst")
    description, samples = read_lmdb(tmp_path / "dst")
    assert description["classes"] == []
    assert [int64(sample["label"]) for sample in samples] == [-3, 1000000]


def test_a_mistake_in_a_list_names_the_line(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(1), "list.csv": b"path,label\na.jpg,1\na.jpg\n"})
    _, errors = headrace("pack", "--list", tmp_path / "list.csv", tmp_path / "dst", code=1)
    assert "list.csv, line 3" in errors


def test_a_changed_list_is_noticed(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(1), "b.txt": b"no image", "list.csv": b"path\na.jpg\nb.txt\n"})
    headrace("pack", "--strict", "--list", tmp_path / "list.csv", tmp_path / "dst", code=1)  # leaves a journal
    write(tmp_path, {"list.csv": b"path\na.jpg\na.jpg\n"})
    _, errors = headrace("pack", "--list", tmp_path / "list.csv", tmp_path / "dst", code=1)
    assert "list changed" in errors and "--overwrite" in errors
    headrace("pack", "--overwrite", "--list", tmp_path / "list.csv", tmp_path / "dst")
    assert read_lmdb(tmp_path / "dst")[0]["samples"] == 2


def test_strict_fails_after_all_files_were_looked_at(tmp_path):
    write(tmp_path / "src", {"a/1.jpg": jpeg(1), "a/2.jpg": b"no image", "a/3.jpg": jpeg(1)[:50]})
    _, errors = headrace("pack", "--strict", tmp_path / "src", tmp_path / "dst", code=1)
    assert "2 files rejected" in errors
    assert not (tmp_path / "dst" / "dataset.json").exists()
    assert set(report(tmp_path / "dst")) == {"a/2.jpg", "a/3.jpg"}
    headrace("pack", tmp_path / "src", tmp_path / "dst")


def test_check_rejects_what_does_not_decode_and_counts_what_is_repaired(tmp_path):
    whole = jpeg(3, 300, 300)
    png = encode(make_image(random.Random(4), 60, 60), 9)[0]
    write(tmp_path / "src", {"a/good.jpg": whole, "a/half.jpg": whole[: len(whole) // 2], "a/half.png": png[: len(png) // 2]})
    headrace("pack", tmp_path / "src", tmp_path / "unchecked")
    assert report(tmp_path / "unchecked") == {}
    headrace("pack", "--check", tmp_path / "src", tmp_path / "dst")
    lines = report(tmp_path / "dst")
    assert set(lines) == {"a/half.jpg", "a/half.png"}
    assert lines["a/half.png"][0] == "rejected"
    description, samples = read_lmdb(tmp_path / "dst")
    assert description["packed"]["damaged"] == sum(verdict == "damaged" for verdict, _ in lines.values())
    assert len(samples) == 3 - sum(verdict == "rejected" for verdict, _ in lines.values())


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_the_content_decides_what_an_image_is(tmp_path, kind):
    file = io.BytesIO()
    make_image(random.Random(1), 40, 30).save(file, kind)
    whole = file.getvalue()
    write(tmp_path / "src", {"a/named.jpg": whole, "a/unnamed": whole, "a/cut.jpg": whole[: len(whole) // 2]})
    headrace("pack", "--check", tmp_path / "src", tmp_path / "dst")
    verdict, reason = report(tmp_path / "dst")["a/cut.jpg"]
    assert verdict == "rejected" and reason.upper().startswith(f"{kind}: ")
    headrace("verify", tmp_path / "dst")
    headrace("unpack", tmp_path / "dst", tmp_path / "out")
    back = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert back == {"named.jpg": whole, "unnamed": whole}


def test_a_finished_dataset_is_not_replaced_unless_asked(tmp_path):
    write(tmp_path / "src", {"a/1.jpg": jpeg(1)})
    headrace("pack", tmp_path / "src", tmp_path / "dst")
    before = dataset_files(tmp_path / "dst")
    _, errors = headrace("pack", tmp_path / "src", tmp_path / "dst", code=1)
    assert "1 samples already" in errors and "--overwrite" in errors
    assert dataset_files(tmp_path / "dst") == before
    headrace("pack", "--overwrite", tmp_path / "src", tmp_path / "dst")
    assert dataset_files(tmp_path / "dst") == before


def test_a_folder_inside_the_packed_one_may_hold_the_dataset(tmp_path):
    write(tmp_path, {"cats/1.jpg": jpeg(1)})
    headrace("pack", tmp_path, tmp_path / "packed")
    assert read_lmdb(tmp_path / "packed")[0]["classes"] == ["cats"]


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("size", [100, 30_000, 300_001])
def test_a_full_disk_is_a_clear_error_and_no_loss(tmp_path, size):
    files = fill_folder(tmp_path / "src", 3, 30)
    assert sum(map(len, files.values())) > 400_000
    _, errors = headrace("pack", tmp_path / "src", tmp_path / "dst", code=1, preexec_fn=limit_files(size))
    assert str(tmp_path / "dst") in errors and "large" in errors  # EFBIG: "File too large"
    headrace("inspect", tmp_path / "dst", code=1)
    headrace("pack", tmp_path / "src", tmp_path / "dst")
    headrace("pack", tmp_path / "src", tmp_path / "whole")
    assert dataset_files(tmp_path / "dst") == dataset_files(tmp_path / "whole")


def test_a_full_file_system_is_named(tmp_path):
    files = fill_folder(tmp_path / "src", 3, 30)
    small = tmp_path / "small"
    small.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], capture_output=True)
    if mount.returncode != 0:  # not root: the test above covers the rest
        assert os.geteuid() != 0 or b"permission" in mount.stderr.lower(), mount.stderr
        return
    try:
        assert sum(map(len, files.values())) > 400_000
        _, errors = headrace("pack", tmp_path / "src", small / "dst", code=1)
        assert "No space left on device" in errors and str(small / "dst") in errors
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        headrace("pack", tmp_path / "src", small / "dst")
        headrace("verify", "--quiet", small / "dst")
    finally:
        subprocess.run(["umount", small], check=True)


def peak_memory(*arguments):
    """Peak resident bytes of a run, all kinds of memory counted."""
    program = "import os, resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);" \
              "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", program, executable(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024


def test_memory_stays_below_300_mb(tmp_path):
    src = tmp_path / "src"
    write(src, {"a/0.jpg": jpeg(1, 30, 30), "b/0.jpg": jpeg(2, 3000, 2000)})
    for i in range(1, 30_000):  # a large folder of small files: rows and names
        os.link(src / "a" / "0.jpg", src / "a" / f"{i}.jpg")
    for i in range(1, 290):  # and as much as the limit in large ones: buffers
        os.link(src / "b" / "0.jpg", src / "b" / f"{i}.jpg")
    assert os.path.getsize(src / "b" / "0.jpg") * 290 > 300e6
    assert peak_memory("pack", src, tmp_path / "dst", "--threads", 4, "--quiet") < 300e6


def test_usage_errors_end_with_2_and_every_command_explains_itself(tmp_path):
    headrace(code=2)
    headrace("pack", code=2)
    headrace("pack", tmp_path, code=2)
    headrace("pack", "--threads", "0", tmp_path, tmp_path / "dst", code=2)
    headrace("pack", "--shard-size", "huge", tmp_path, tmp_path / "dst", code=2)
    headrace("pack", "--no-such-option", tmp_path, tmp_path / "dst", code=2)
    headrace("nonsense", code=2)
    assert headrace("--version")[0].startswith("headrace ")
    for command in ("pack", "inspect", "verify", "unpack", "index", "audit"):
        assert "Examples:" in headrace(command, "--help")[0]


def test_sources_that_do_not_exist_or_hold_no_image_are_errors(tmp_path):
    assert "cannot open" in headrace("pack", tmp_path / "none", tmp_path / "dst", code=1)[1]
    (tmp_path / "empty").mkdir()
    assert "no readable image" in headrace("pack", tmp_path / "empty", tmp_path / "dst", code=1)[1]
    write(tmp_path, {"file.jpg": jpeg(1)})
    assert "is no folder" in headrace("pack", tmp_path / "file.jpg", tmp_path / "dst", code=1)[1]
