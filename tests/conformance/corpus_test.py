"""Every kind of file, whole and damaged, and every odd file, against Pillow itself; prints a table by kind."""

import collections
import csv
import random

import corpus
import numpy as np
from decode_test import pillow_oriented, random_region

# Incomplete progressive files: libjpeg-turbo 2 and 3 smooth blocks differently, the one kind where the versions differ.
SMOOTHED = "scans/progressive_incomplete"
# What Pillow reads and Headrace refuses (docs/pixels.md, "Which files").
REFUSED = (
    "PNM is not",
    "ICO is not",
    "JPEG 2000 is not",
    "lossless process",
    "TIFF: photometric 8 ",
)

# Older versions of dav1d do not notice all broken AV1 data.
AV1_DATA = "Pillow refuses it: RuntimeError('Failed to decode frame 0: Decoding of "

VERDICTS = ("equal", "repaired", "rejected", "versions", "different")


def verdict_of(render_tool, path, generator):
    """(verdict, what is different). Equal: the pixels are Pillow's, whole and in a region. Repaired: so with a warning, or Pillow
    raises. Rejected: by both, or only by Headrace as REFUSED says. Versions: another version of the library decides."""
    try:
        expected, pillow_error = pillow_oriented(path), None
    except Exception as error:  # noqa: BLE001  # Pillow raises what it happens to meet in a broken file
        expected, pillow_error = None, repr(error)
    answer, pixels = render_tool.pixels(cmd="decode", file=str(path), oriented=True)
    if not answer["ok"]:
        refused = expected is None or any(words in answer["error"] for words in REFUSED)
        return ("rejected", "") if refused else ("different", f"Pillow reads it: {answer['error']}")
    repaired = bool(answer["warning"])
    if expected is None:
        return ("repaired", "") if repaired else ("different", f"Pillow refuses it: {pillow_error}")
    if (answer["height"], answer["width"]) != expected.shape[:2]:
        return "different", f"{answer}, Pillow {expected.shape}"
    if not np.array_equal(pixels.reshape(expected.shape), expected):
        return "different", "the pixels"
    region = random_region(generator, *expected.shape[:2])
    top, left, height, width = region
    answer, pixels = render_tool.pixels(cmd="decode", file=str(path), oriented=True, region=region)
    cut = expected[top : top + height, left : left + width]
    if not answer["ok"] or not np.array_equal(pixels.reshape(cut.shape), cut):
        return "different", f"region {region}: {answer}"
    return ("repaired" if repaired else "equal"), ""


class Table:
    """Counts of verdicts by kind."""

    def __init__(self):
        self._counts = collections.defaultdict(collections.Counter)
        self.differences = []

    def add(self, kind, name, verdict, reason):
        self._counts[kind][verdict] += 1
        if verdict == "different":
            self.differences.append(f"{kind}, {name}: {reason}")

    def total(self, verdict):
        return sum(counts[verdict] for counts in self._counts.values())

    def show(self):
        print(f"\n{'kind':32}{'files':>8}" + "".join(f"{verdict:>11}" for verdict in VERDICTS))
        for kind, counts in sorted(self._counts.items()):
            print(f"{kind:32}{counts.total():8}" + "".join(f"{counts[verdict]:11}" for verdict in VERDICTS))


def av1_differs(content, damaged):
    """Whether AV1 data were damaged: of such versions of dav1d make other pixels now and then."""
    return not damaged.endswith(content[max(content.find(b"mdat"), content.find(b"idat")) :])


def run(render_tool, path, seed, copies):
    """A table of all kinds as they are, or of so many damaged copies of each file."""
    generator = random.Random(seed)
    table = Table()
    for number, (kind, content) in enumerate(corpus.files(seed)):
        for copy in range(max(copies, 1)):
            path.write_bytes(corpus.damaged(generator, content) if copies else content)
            verdict, reason = verdict_of(render_tool, path, generator)
            of_version = kind.startswith("TIFF") or (
                kind.startswith("AVIF") and (reason.startswith(AV1_DATA) or (reason == "the pixels" and av1_differs(content, path.read_bytes())))
            )
            if verdict == "different" and copies and of_version:
                verdict = "versions"
            table.add(kind, f"file {number} of seed {seed}, copy {copy}", verdict, reason)
    table.show()
    return table


def test_files_of_every_kind_equal_pillow(render_tool, tmp_path):
    table = run(render_tool, tmp_path / "file", seed=1, copies=0)
    assert not table.differences, "\n".join(table.differences)
    assert table.total("equal") > 5 * table.total("rejected"), "most of the files are such as Pillow reads"


def test_damaged_files_equal_pillow_or_are_refused_as_there(render_tool, tmp_path):
    table = run(render_tool, tmp_path / "file", seed=2, copies=1)
    assert not table.differences, "\n".join(table.differences)
    assert table.total("equal") > 100 and table.total("rejected") > 100, "both happen"


def test_odd_files_equal_pillow_and_are_decoded_repaired_or_refused_as_expected(render_tool, odd_folder):
    generator = random.Random(3)
    table = Table()
    rows = []
    if (odd_folder / "expected.csv").exists():
        with open(odd_folder / "expected.csv", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if (odd_folder / row["file"]).is_file()]
    for row in rows:
        path = odd_folder / row["file"]
        verdict, reason = verdict_of(render_tool, path, generator)
        if row["file"].startswith(SMOOTHED) and reason == "the pixels":
            verdict = "versions"
        # Of what Pillow reads too the list says "reject or decode"; a file that is cut off is decoded as far as it goes.
        expected = {"decode": {"equal"}, "repair": {"repaired"}, "reject": {"rejected"}}.get(row["expect"], set(VERDICTS))
        expected |= {"versions"} if row["file"].startswith(SMOOTHED) else set()
        expected |= {"equal"} if "reject or decode" in row["note"] else set()
        expected |= {"repaired"} if "reject or repair" in row["note"] else set()
        if verdict != "different" and verdict not in expected:
            verdict, reason = "different", f"{verdict}, not {row['expect']}"
        table.add(row["file"].split("/")[0], row["file"], verdict, reason)
    table.show()
    assert not table.differences, "\n".join(table.differences)
