"""Writes version1.index from docs/shard_format.md alone, without Headrace's code. Needs the package xxhash.

Two samples of shard 3, from number 70 on, with an image, a label, a name, and two further columns.
"""

import struct
from pathlib import Path

import xxhash

FIELDS = [("image", 1), ("label", 2), ("name", 4), ("weight", 3), ("Größe", 2)]
FIRST, SHARD, LMDB_BYTES = 70, 3, 1 << 20
CHECKSUM = bytes(range(16))


def parts():
    """(kind, place in the row) of each field, and the row's size."""
    end, places = 48, []
    for _, kind in FIELDS:
        places.append((kind, end))
        end += 24 if kind in (1, 4) else 8
    return places, (end + 63) // 64 * 64


def row(sample, image, values):
    places, size = parts()
    out = bytearray(size)
    out[8:48] = struct.pack("<QIIBBBB4sQQ", sample, *image, 0, 0)
    for (kind, place), value in zip(places, values):
        form = {1: "<QQQ", 4: "<QQQ", 2: "<q", 3: "<d"}[kind]
        packed = struct.pack(form, *value) if kind in (1, 4) else struct.pack(form, value)
        out[place : place + len(packed)] = packed
    out[:8] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(out[8:]), seed=sample))
    return bytes(out)


def header(rows):
    places, row_bytes = parts()
    rows_offset = (128 + 64 * len(FIELDS) + 63) // 64 * 64
    entries_offset = rows_offset + len(rows) * row_bytes
    out = bytearray(rows_offset)
    out[:96] = struct.pack("<8sIIQQIIQQQQ16sQ", b"HRINDEX\0", 1, SHARD, FIRST, len(rows), len(FIELDS), row_bytes, rows_offset,
                           entries_offset, 0, LMDB_BYTES, CHECKSUM, xxhash.xxh3_64_intdigest(b""))
    for i, ((name, kind), (_, place)) in enumerate(zip(FIELDS, places)):
        out[128 + 64 * i : 192 + 64 * i] = struct.pack("<II56s", kind, place, name.encode())
    out[120:128] = struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(out[: 128 + 64 * len(FIELDS)])))
    return bytes(out)


ROWS = [
    row(70, (640, 480, 1, 6, 3, 0, bytes([0x22, 0x11, 0x11, 0])),
        [(4112, 100000, 0x0123456789ABCDEF), -1, (200000, 9, 0xFEDCBA9876543210), 0.5, 1 << 40]),
    row(71, (1, 65500, 2, 1, 4, 3, bytes(4)),
        [(1048570, 6, 1), 1 << 62, (0, 0, 2), -1e300, 0]),
]
Path(__file__).with_name("version1.index").write_bytes(header(ROWS) + b"".join(ROWS))
