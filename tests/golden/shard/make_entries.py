"""Writes version1.entries from docs/shard_format.md alone, without Headrace's code. Needs the package xxhash.

The entry data of a CMYK image of 5 × 3 MCUs with K = 2, and behind it its table set: what lies in an index from
entries_offset + 640 on.
"""

import struct
from pathlib import Path

import xxhash

PLACE, K, WIDTH, HEIGHT = 640, 2, 75, 41
# Per component: sampling, quantisation, DC and AC table.
COMPONENTS = [(0x22, 0, 0, 0), (0x11, 2, 1, 3), (0x11, 2, 1, 3), (0x21, 0, 0, 0)]
# (byte, bit, DC predictions) of each entry point, row by row.
POINTS = [
    [(0, 0, (0, 0, 0, 0)), (37, 5, (-2048, 2047, 1, -1)), (1 << 20, 7, (5, -6, 7, -8))],
    [(1 << 21, 3, (0, -1, 0, 0)), ((1 << 21) + (1 << 25) - 1, 1, (2047, 2047, 2047, 2047)), ((1 << 21) + 9, 0, (1, 1, 1, 1))],
    [(40000000, 2, (0, 0, 0, -2048)), (40000001, 3, (3, 3, 3, 3)), (40000002, 4, (-4, -4, -4, -4))],
]
QUANT = {0: [1 + i for i in range(64)], 2: [65535 - i for i in range(64)]}
# Codes of each length from 1 bit on, and the symbols.
DC = {0: ([0, 2], [3, 0]), 1: ([1, 1, 1], [0, 11, 15])}
AC = {0: ([0, 1, 2] + [0] * 12 + [1], [0x00, 0xF0, 0x21, 0xFF]), 3: ([1], [0x01])}


def sealed(body):
    """Fills up to a multiple of 8 and puts the checksum in front."""
    body += bytes(-len(body) % 8)
    return struct.pack("<Q", xxhash.xxh3_64_intdigest(body)) + body


def twelve(value):
    return value & 0xFFF


def entry_data(tables_offset):
    rows = struct.pack("<3I", *(row[0][0] for row in POINTS)) + bytes(4)
    points = b""
    for row in POINTS:
        for byte, bit, dc in row:
            word = bit | byte - row[0][0] << 3 | twelve(dc[0]) << 28 | twelve(dc[1]) << 40 | twelve(dc[2]) << 52
            points += struct.pack("<QQ", word, twelve(dc[3]))
    head = struct.pack("<HBBHH", 1, K, 4, WIDTH, HEIGHT)
    head += b"".join(bytes(component) for component in COMPONENTS)
    head += struct.pack("<IIIIQII", 6, 600, 50000000, 4, tables_offset, 64 + len(rows + points), 0)
    return sealed(head + rows + points)


def table_set():
    def mask(tables):
        return sum(1 << number for number in tables)

    body = bytes([mask(QUANT), mask(DC), mask(AC), 0]) + b"".join(struct.pack("<64H", *QUANT[i]) for i in sorted(QUANT))
    for tables in (DC, AC):
        for number in sorted(tables):
            counts, symbols = tables[number]
            body += bytes(counts + [0] * (16 - len(counts))) + bytes(symbols)
    size = (12 + len(body) + 7) // 8 * 8
    return sealed(struct.pack("<I", size) + body)


def padded(data):
    return data + bytes(-len(data) % 64)


size = len(padded(entry_data(0)))
Path(__file__).with_name("version1.entries").write_bytes(padded(entry_data(PLACE + size)) + padded(table_set()))
