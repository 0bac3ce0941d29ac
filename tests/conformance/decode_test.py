"""Decoded pixels, orientations and refusals against Pillow itself (the reference of docs/pixels.md)."""

import io
import random
import struct
import warnings
import zlib

import corpus
import numpy as np
import pytest
from PIL import Image, ImageOps


def pillow_oriented(path):
    """RGB of the whole picture as a training script gets it: open, exif_transpose, convert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as image:
            try:
                shown = ImageOps.exif_transpose(image)
            except SyntaxError:  # EXIF that is no TIFF: Pillow gives up, and so has no orientation
                shown = image
            return np.asarray(shown.convert("RGB"))


def random_region(generator, height, width):
    region_height, region_width = generator.randint(1, height), generator.randint(1, width)
    top = generator.randint(0, height - region_height)
    left = generator.randint(0, width - region_width)
    return [top, left, region_height, region_width]


def assert_same(render_tool, path, generator, regions):
    """The whole picture and some regions of it, in coordinates of the oriented picture."""
    expected = pillow_oriented(path)
    answer, pixels = render_tool.pixels(cmd="decode", file=str(path), oriented=True)
    assert answer["ok"], f"{path}: {answer}"
    assert (answer["height"], answer["width"]) == expected.shape[:2], path
    assert np.array_equal(pixels.reshape(expected.shape), expected), path
    for _ in range(regions):
        region = random_region(generator, *expected.shape[:2])
        top, left, height, width = region
        answer, pixels = render_tool.pixels(cmd="decode", file=str(path), oriented=True, region=region)
        assert answer["ok"], f"{path}: {answer}"
        cut = expected[top : top + height, left : left + width]
        assert np.array_equal(pixels.reshape(cut.shape), cut), f"{path}: region {region}"


def test_photos_equal_pillow_whole_and_in_regions(render_tool, photos):
    generator = random.Random(1)
    for path in photos:
        assert_same(render_tool, path, generator, regions=2)


def picture(generator, height, width, channels):
    """Slopes, edges and noise."""
    y, x = np.mgrid[0:height, 0:width]
    slopes = np.stack([(x * (3 + i) + y * 5) % 200 + 20 for i in range(channels)], axis=-1)
    edges = (x // 7 + y // 5) % 2 * 60
    noise = np.array([generator.randrange(40) for _ in range(height * width)]).reshape(height, width)
    pixels = np.clip(slopes + (edges + noise)[..., None] - 40, 0, 255).astype(np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def jpegs(generator):
    """(name, bytes): every mode, sampling and process that Pillow writes."""
    for mode, channels in (("L", 1), ("RGB", 3), ("CMYK", 4)):
        for sampling in ("4:4:4", "4:2:2", "4:2:0") if mode == "RGB" else ("4:4:4",):
            for progressive in (False, True):
                height, width = generator.randint(1, 150), generator.randint(1, 150)
                image = Image.fromarray(picture(generator, height, width, channels), mode=mode)
                file = io.BytesIO()
                image.save(
                    file,
                    "JPEG",
                    quality=generator.randint(30, 100),
                    subsampling=sampling,
                    progressive=progressive,
                    restart_marker_blocks=generator.choice([0, 5]),
                )
                yield f"{mode}-{sampling}-{progressive}", file.getvalue()


def test_jpegs_of_all_modes_and_samplings_equal_pillow(render_tool, tmp_path):
    generator = random.Random(3)
    for _ in range(4):
        for name, content in jpegs(generator):
            path = tmp_path / f"{name.replace(':', '')}.jpg"
            path.write_bytes(content)
            assert_same(render_tool, path, generator, regions=6)


def test_cmyk_equals_pillow_for_all_inks(render_tool, tmp_path):
    """Flat tiles survive JPEG exactly, so that the conversion sees every pair of ink and black."""
    inks = np.arange(0, 256, 5)
    tiles = np.zeros((8 * len(inks), 8 * len(inks), 4), dtype=np.uint8)
    for row, black in enumerate(inks):
        for column, ink in enumerate(inks):
            colours = [ink, 255 - ink, (ink * 3) % 256, black]
            tiles[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = colours
    path = tmp_path / "inks.jpg"
    Image.fromarray(tiles, mode="CMYK").save(path, "JPEG", quality=100, subsampling=0)
    assert_same(render_tool, path, random.Random(4), regions=3)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_all_orientations_equal_exif_transpose(render_tool, tmp_path, kind):
    generator = random.Random(5)
    for orientation in range(0, 10):
        for height, width in ((1, 1), (5, 70), (67, 34)):
            exif = Image.Exif()
            exif[0x0112] = orientation
            path = tmp_path / f"turned.{kind.lower()}"
            Image.fromarray(picture(generator, height, width, 3)).save(path, kind, exif=exif)
            assert_same(render_tool, path, generator, regions=4)


def jpeg_with_segments(segments):
    file = io.BytesIO()
    Image.new("RGB", (8, 16)).save(file, "JPEG")
    content = file.getvalue()
    added = b"".join(b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body for body in segments)
    return content[:2] + added + content[2:]


def pillow_orientation(path):
    """What exif_transpose would act on: 1 … 8."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(path) as image:
            try:
                image.load()
                value = image.getexif().get(0x0112, 1)
            except (SyntaxError, struct.error):
                return 1
            # A fraction or real number that equals 6 finds the entry of 6 in exif_transpose's table.
            return {n: n for n in range(1, 9)}.get(value, 1)


def exif_block(generator):
    """A TIFF block with an orientation somewhere among other entries, of any type and count."""
    order = generator.choice("<>")
    entries = []
    for tag in sorted(generator.sample([271, 274, 274, 282, 305, 531], generator.randint(0, 5))):
        kind = generator.choice([3, 3, 3, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 14])
        count = generator.choice([1, 1, 1, 0, 2, 3, 100])
        value = generator.choice([0, 1, 3, 6, 8, 9, 60, 100, 5000])
        if kind in (3, 8) and count <= 2:
            raw = struct.pack(order + "HH", value, 6)
        elif kind == 11:
            raw = struct.pack(order + "f", value)
        elif kind in (1, 2, 6, 7):
            raw = bytes([value % 256, 6, 0, 0])
        else:
            raw = struct.pack(order + "I", value)
        entries.append(struct.pack(order + "HHI", tag, kind, count) + raw)
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    data = b"".join(struct.pack(order + "I", generator.choice([0, 1, 6, 12])) for _ in range(20))
    return head + struct.pack(order + "H", len(entries)) + b"".join(entries) + struct.pack(order + "I", 0) + data


def test_orientations_of_odd_exif_equal_pillow(render_tool, tmp_path):
    generator = random.Random(6)
    path = tmp_path / "exif.jpg"
    xmp = b"http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation=\"%d\"/>"
    found = []
    for _ in range(1500):
        block = bytearray(exif_block(generator))
        if generator.random() < 0.3:
            block[generator.randrange(len(block))] = generator.randrange(256)
        if generator.random() < 0.2:
            del block[generator.randrange(len(block)) :]
        segments = [b"Exif\0\0" + bytes(block)]
        if generator.random() < 0.1:
            middle = generator.randrange(len(block) + 1)
            segments = [b"Exif\0\0" + bytes(block[:middle]), b"Exif\0\0" + bytes(block[middle:])]
        if generator.random() < 0.3:
            segments.append(xmp % generator.randrange(10))
        path.write_bytes(jpeg_with_segments(segments))
        expected = pillow_orientation(path)
        answer = render_tool.ask(cmd="probe", file=str(path))
        assert answer["ok"] and answer["orientation"] == expected, f"{segments}: {answer}, Pillow {expected}"
        found.append(expected)
    assert len(set(found)) >= 5, "the blocks reach the interesting cases"


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, bits, colour_type, rows, before=b"", after=b""):
    """A PNG of unfiltered `rows` (bytes), with chunks before and after its image data."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + before
        + chunk(b"IDAT", data)
        + after
        + chunk(b"IEND", b"")
    )


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
PNG_KINDS = [(0, bits, 1) for bits in (1, 2, 4, 8, 16)] + [(3, bits, 1) for bits in (1, 2, 4, 8)]
PNG_KINDS += [(kind, bits, channels) for kind, channels in ((2, 3), (4, 2), (6, 4)) for bits in (8, 16)]


@pytest.mark.parametrize(("colour_type", "bits", "channels"), PNG_KINDS)
def test_pngs_of_all_kinds_equal_pillow(render_tool, tmp_path, colour_type, bits, channels):
    generator = random.Random(7)
    path = tmp_path / "kind.png"
    for case in range(6):
        height, width = generator.randint(1, 60), generator.randint(1, 60)
        row_bytes = (width * channels * bits + 7) // 8
        rows = [generator.randbytes(row_bytes) for _ in range(height)]
        before = b""
        if colour_type == 3:
            # Every other palette is shorter than the indices reach.
            colours = 1 << bits if case % 2 == 0 else max(1, (1 << bits) // 3)
            before = chunk(b"PLTE", generator.randbytes(3 * colours))
        if case >= 4 and colour_type in (0, 2, 3):
            transparent = {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: b"\x80"}[colour_type]
            before += chunk(b"tRNS", transparent)
        if case >= 2:
            before = chunk(b"gAMA", struct.pack(">I", 22222)) + before
        path.write_bytes(png(width, height, bits, colour_type, rows, before))
        assert_same(render_tool, path, generator, regions=4)


def test_orientations_in_png_equal_pillow(render_tool, tmp_path):
    def tiff(value):
        return b"MM\0*\0\0\0\x08\0\1" + struct.pack(">HHIHH", 274, 3, 1, value, 0) + b"\0\0\0\0"

    def profile(block):
        return b"\nexif\n%8d\n" % len(block) + block.hex().encode() + b"\n"

    xmp = b'<x tiff:Orientation="7"/>'
    exif = chunk(b"eXIf", tiff(6))
    raw = b"Raw profile type exif\0"
    texts = {
        "eXIf": exif,
        "raw profile": chunk(b"zTXt", raw + b"\0" + zlib.compress(profile(b"Exif\0\0" + tiff(5)))),
        "raw profile, plain": chunk(b"tEXt", raw + profile(tiff(3))),
        "eXIf and raw profile": exif + chunk(b"tEXt", raw + profile(tiff(3))),
        "XMP": chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp),
        "XMP, packed": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0en\0\0" + zlib.compress(xmp)),
        "XMP and eXIf": chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp) + exif,
        "text named exif": chunk(b"tEXt", b"exif\0" + tiff(8)),
        "eXIf, then text named exif": exif + chunk(b"tEXt", b"exif\0" + tiff(8)),
        "text named exif, then eXIf": chunk(b"tEXt", b"exif\0" + tiff(8)) + exif,
        "none": b"",
    }
    path = tmp_path / "turned.png"
    for name, chunks in texts.items():
        for place in ("before", "after"):
            path.write_bytes(png(2, 3, 8, 0, [b"ab", b"cd", b"ef"], **{place: chunks}))
            answer = render_tool.ask(cmd="probe", file=str(path))
            expected = pillow_orientation(path)
            assert answer["ok"] and answer["orientation"] == expected, f"{name} {place}: {answer}"


def test_compressed_texts_of_a_png_count_up_to_a_limit(render_tool, tmp_path):
    """Pillow raises above 64 MiB of text. Without a limit a file of 4 MB took 8 s."""
    key = b"XML:com.adobe.xmp\0\1\0\0\0"
    long_text = chunk(b"iTXt", key + zlib.compress(bytes(1 << 20)))
    turned = chunk(b"iTXt", key + zlib.compress(b'<x tiff:Orientation="6"/>'))
    path = tmp_path / "texts.png"
    for count, orientation in ((63, 6), (64, 1)):
        path.write_bytes(png(2, 3, 8, 0, [b"ab", b"cd", b"ef"], before=count * long_text + turned))
        assert render_tool.ask(cmd="probe", file=str(path))["orientation"] == orientation
        if count == 63:
            assert pillow_orientation(path) == orientation
        else:
            with pytest.raises(ValueError, match="memory"):
                pillow_orientation(path)


def test_tiles_of_a_tiff_far_larger_than_the_picture_are_refused(render_tool, tmp_path):
    """Their edges may be large, but 4 MB must not inflate to 4 GB for a row of 1,000 pixels."""
    entries = {256: (4, [1000]), 257: (4, [1]), 258: (3, [8]), 259: (3, [8]), 262: (3, [1]), 277: (3, [1]), 322: (4, [16])}
    path = tmp_path / "tiles.tif"
    for tile_height in (16, 1 << 17, 1 << 22):
        tile = zlib.compress(bytes(16 * tile_height))
        tiff = corpus.tiff_file("<", {**entries, 323: (4, [tile_height])}, [tile] * 63)
        path.write_bytes(tiff)
        if tile_height < 1 << 22:
            assert_same(render_tool, path, random.Random(8), regions=1)
        else:
            assert "tiles are far larger" in render_tool.ask(cmd="decode", file=str(path), out=str(tmp_path / "out"))["error"]


def test_broken_pngs_that_pillow_reads_equal_pillow(render_tool, tmp_path):
    rows = [bytes(range(30 * y, 30 * y + 30)) for y in range(8)]
    colours = chunk(b"PLTE", bytes(range(100, 220)))
    indices = [bytes(x % 40 for x in row) for row in rows]
    whole, palette = png(10, 8, 8, 2, rows), png(30, 8, 8, 3, indices, before=colours)
    end = whole.index(b"IEND") - 4
    header = struct.pack(">IIBBBBB", 10, 8, 8, 2, 7, 0, 0) + b"more"
    pixels = Image.open(io.BytesIO(palette)).convert("RGB").resize((21, 19))
    broken = {
        "a second palette": png(30, 8, 8, 3, indices, before=colours + chunk(b"PLTE", b"abcdef")),
        "a palette of 3n + 1 bytes": png(30, 8, 8, 3, indices, before=chunk(b"PLTE", bytes(range(100, 131)))),
        "an empty palette": png(30, 8, 8, 3, indices, before=chunk(b"PLTE", b"")),
        "no palette": png(30, 8, 8, 3, indices),
        "an unknown critical chunk": png(10, 8, 8, 2, rows, before=chunk(b"CRIT", b"abc")),
        "an odd name": png(10, 8, 8, 2, rows, before=chunk(b"a_1Z", b"abc")),
        "a long header": whole[:8] + chunk(b"IHDR", header) + whole[33:],
        "a second header": png(1, 1, 8, 2, rows, before=whole[8:33]),
        "a wrong checksum of the data": whole[: end - 1] + b"?" + whole[end:],
        "cut in the data's checksum": whole[: end - 2],
        "cut in zlib's checksum": whole[: end - 6],
        "without zlib's checksum": whole[:33] + chunk(b"IDAT", whole[41 : end - 8]) + whole[end:],
        "fewer rows": png(10, 8, 8, 2, rows[:5]),
        "fewer rows of indices": png(30, 8, 8, 3, indices[:5], before=colours),
    }
    for passes in range(1, 7):  # of an interlaced one
        sizes = [(-(-(21 - x) // dx), -(-(19 - y) // dy)) for x, y, dx, dy in ADAM7[:passes]]
        data = b"".join((b"\0" + pixels.tobytes()[: 3 * width]) * height for width, height in sizes)
        interlaced = struct.pack(">IIBBBBB", 21, 19, 8, 2, 0, 0, 1)
        broken[f"{passes} passes"] = whole[:8] + chunk(b"IHDR", interlaced) + chunk(b"IDAT", zlib.compress(data)) + whole[end:]
    path = tmp_path / "broken.png"
    for content in broken.values():
        path.write_bytes(content)
        assert_same(render_tool, path, random.Random(9), regions=3)


def test_broken_pngs_are_refused_as_pillow_does(render_tool, tmp_path):
    rows = [bytes(range(30))] * 10
    whole = png(10, 10, 8, 2, rows, before=chunk(b"tEXt", b"a\0b"))
    text = whole.index(b"tEXt")
    broken = {
        "cut off": whole[: len(whole) - 30],
        "text checksum": whole[: text + 9] + b"?" + whole[text + 10 :],
        "header checksum": whole[:29] + b"????" + whole[33:],
        "no data": png(10, 10, 8, 2, []),
        "half a row": png(10, 10, 8, 2, [*rows[:4], rows[0][:15]]),
        "too many colours": png(10, 10, 8, 3, rows, before=chunk(b"PLTE", bytes(771))),
        "an impossible name": png(10, 10, 8, 2, rows, before=chunk(b"te t", b"")),
    }
    path = tmp_path / "broken.png"
    for name, content in broken.items():
        path.write_bytes(content)
        with pytest.raises((OSError, SyntaxError, ValueError)), Image.open(path) as image:
            image.load()
        answer = render_tool.ask(cmd="decode", file=str(path), out=str(tmp_path / "out"))
        assert not answer["ok"] and answer["error"].startswith("PNG: "), f"{name}: {answer}"
