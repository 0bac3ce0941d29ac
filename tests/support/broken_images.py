"""Datasets whose images were damaged: after packing, as disks do it, or before, in ways that a packer does not see."""

import random
from pathlib import Path

import lmdb


def break_images(dataset, numbers):
    """Overwrites the images of these samples in their shards: their hashes are wrong."""
    rng = random.Random(1)
    for shard in sorted(Path(dataset).glob("*.lmdb")):
        with lmdb.open(str(shard), subdir=False, readonly=True, lock=False, max_dbs=16) as environment:
            with environment.begin(db=environment.open_db(b"image", create=False)) as transaction:
                images = {int.from_bytes(key, "big"): bytes(value) for key, value in transaction.cursor()}
        data = bytearray(shard.read_bytes())
        for number in images.keys() & set(numbers):
            at = data.find(images[number])
            assert at >= 0 and data.find(images[number], at + 1) < 0
            data[at : at + len(images[number])] = rng.randbytes(len(images[number]))
        shard.write_bytes(data)


def with_second_frame(jpeg):
    """A baseline JPEG that is cut in the middle of its scan and goes on with another frame header: libjpeg fills what is missing,
    and gives up when it looks for the end of the file."""
    frame = jpeg.index(b"\xff\xc0")
    length = int.from_bytes(jpeg[frame + 2 : frame + 4], "big")
    scan = jpeg.index(b"\xff\xda")
    cut = scan + (len(jpeg) - scan) // 2
    while jpeg[cut - 1] == 0xFF:
        cut -= 1
    return jpeg[:cut] + jpeg[frame : frame + 2 + length] + jpeg[cut:]
