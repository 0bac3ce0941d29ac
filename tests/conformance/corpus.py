"""Image files of every kind that is decoded: what Pillow writes, and by hand what it reads but does not write."""

import random
import struct
import zlib

from avif_corpus import avifs
from avif_gain_maps import gain_maps
from avif_scaled import scaled_avifs
from pictures import exif, picture, saved, size


def jpegs(generator):
    """Cut off inside a header behind the last row."""
    for mode in ("L", "RGB", "CMYK"):
        for header in (b"", b"\xff", b"\xff\xda", b"\xff\xda\0", b"\xff\xda\0\x08\x01", b"\xff\xdb\0", b"\xff\xc4\0\x40\x11"):
            yield "JPEG cut in a header", saved(picture(generator, *size(generator), mode), "JPEG")[:-2] + header


def webps(generator):
    for mode in ("RGB", "RGBA", "L", "P"):
        for quality in (0, 30, 80, 100):
            image = picture(generator, *size(generator), mode)
            yield "WebP lossy", saved(image, "WEBP", quality=quality, method=generator.randint(0, 6))
        for exact in (False, True):
            yield "WebP lossless", saved(picture(generator, *size(generator), mode), "WEBP", lossless=True, exact=exact)
    for alpha_quality in (0, 50, 100):
        image = picture(generator, *size(generator), "RGBA")
        yield "WebP alpha", saved(image, "WEBP", quality=60, alpha_quality=alpha_quality)
    for orientation in range(10):
        yield "WebP EXIF", saved(picture(generator, *size(generator)), "WEBP", exif=exif(orientation))
    xmp = b'<x tiff:Orientation="6"/>'
    yield "WebP XMP", saved(picture(generator, *size(generator)), "WEBP", xmp=xmp)
    yield "WebP XMP", saved(picture(generator, *size(generator)), "WEBP", xmp=xmp, exif=exif(3))
    for mode in ("RGB", "RGBA"):
        for lossless in (False, True):
            frames = [picture(generator, 50, 40, mode) for _ in range(3)]
            yield "WebP animated", saved(
                frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=lossless, background=(9, 200, 30, 255)
            )
    yield "WebP animated", webp_of_one_small_frame(picture(generator, 20, 10, "RGBA"), 60, 34, left=12, top=20)


def riff(kind, body):
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def webp_of_one_small_frame(image, width, height, left, top):
    """An animation whose first frame leaves most of the canvas."""
    stream = saved(image, "WEBP", lossless=True, exact=True)[12:]
    canvas = struct.pack("<I", 0x12) + struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    places = [left // 2, top // 2, image.width - 1, image.height - 1, 100]
    frame = b"".join(struct.pack("<I", value)[:3] for value in places) + b"\0" + stream
    body = riff(b"VP8X", canvas) + riff(b"ANIM", struct.pack("<IH", 0xFF0000FF, 0)) + riff(b"ANMF", frame)
    return riff(b"RIFF", b"WEBP" + body)


def gifs(generator):
    for mode in ("L", "P", "1", "RGB"):
        for interlace in (0, 1):
            for _ in range(3):
                yield "GIF", saved(picture(generator, *size(generator), mode), "GIF", interlace=interlace)
    for colours in (2, 5, 64, 256):
        image = picture(generator, *size(generator)).quantize(colours)
        yield "GIF transparent", saved(image, "GIF", transparency=generator.randrange(colours))
    for disposal in (0, 1, 2, 3):
        frames = [picture(generator, 30, 40).quantize(50 + i) for i in range(3)]
        yield "GIF animated", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], disposal=disposal, loop=0)
    for _ in range(60):
        yield "GIF by hand", gif_by_hand(generator)
    for blocks in (b"\0", b"\3\1\0\0\0", b"\0\3\1\0\0\0"):
        file = saved(picture(generator, *size(generator), "P"), "GIF")
        at = 13 + (3 << (file[10] & 7) + 1)
        yield "GIF loops", file[:at] + b"!\xff\x0bNETSCAPE2.0" + blocks + file[at:]


def gif_blocks(codes, first_bits, generator):
    """LZW codes without compression: a clear code before the width would grow."""
    clear, width = 1 << first_bits, first_bits + 1
    held = bits = 0
    out = bytearray()
    for number, code in enumerate([*codes, clear + 1]):
        for value in [clear, code] if number % max(1, clear - 2) == 0 else [code]:
            held |= value << bits
            bits += width
            while bits >= 8:
                out.append(held & 255)
                held >>= 8
                bits -= 8
    if bits:
        out.append(held & 255)
    blocks = b""
    while out:
        count = min(len(out), generator.randint(1, 255))
        blocks += bytes([count]) + bytes(out[:count])
        del out[:count]
    return blocks + b"\0"


def gif_palette(generator, bits):
    if generator.random() < 0.3:
        return bytes(value for i in range(1 << bits) for value in (i, i, i))  # Pillow does not look at it
    return generator.randbytes(3 << bits)


def gif_by_hand(generator):
    """Frames smaller and larger than the screen, local palettes, indices beyond them, extensions."""
    screen = generator.randint(0, 40), generator.randint(0, 40)
    bits = generator.randint(1, 8)
    has_global, has_local = generator.random() < 0.7, generator.random() < 0.5
    flags = (0x80 if has_global else 0) | (bits - 1)
    file = b"GIF89a" + struct.pack("<HHBBB", *screen, flags, generator.randrange(256), 0)
    if has_global:
        file += gif_palette(generator, bits)
    if generator.random() < 0.5:
        packed = generator.randrange(32)
        file += b"!\xf9\x04" + bytes([packed, 5, 0, generator.randrange(256)]) + b"\0"
    if generator.random() < 0.3:
        file += b"!\xfe\x05hello\x03you\0"
    left, top = generator.randint(0, 20), generator.randint(0, 20)
    width, height = generator.randint(1, 30), generator.randint(1, 30)
    local_bits = generator.randint(1, 8)
    packed = (0x80 if has_local else 0) | (0x40 if generator.random() < 0.5 else 0) | (local_bits - 1)
    file += b"," + struct.pack("<HHHHB", left, top, width, height, packed)
    if has_local:
        file += gif_palette(generator, local_bits)
    code_bits = generator.randint(2, 8)
    codes = [generator.randrange(1 << code_bits) for _ in range(width * height)]
    return file + bytes([code_bits]) + gif_blocks(codes, code_bits, generator) + b";"


# Colour type, bits, samples.
PNG_LAYOUTS = [(0, bits, 1) for bits in (1, 2, 4, 8, 16)] + [(3, bits, 1) for bits in (1, 2, 4, 8)]
PNG_LAYOUTS += [(kind, bits, samples) for kind, samples in ((2, 3), (4, 2), (6, 4)) for bits in (8, 16)]
PNG_FLAWS = (
    "none", "part", "frame", "few rows", "part of few rows", "more rows", "wrong Adler-32", "no Adler-32", "small window", "wrong header",
    "wrong filter",
)  # fmt: skip


def pngs(generator):
    for layout in PNG_LAYOUTS:
        for interlaced in (0, 1, 2):
            for flaw in PNG_FLAWS:
                if interlaced and flaw in ("wrong header", "wrong filter"):
                    continue  # refused anyway
                yield f"PNG {flaw}", png(generator, *layout, interlaced, flaw)


def png_chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_rows(generator, width, height, pixel_bits, interlaced):
    """Random samples with random filters."""
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for left, top, x_step, y_step in passes:
        columns = len(range(left, width, x_step))
        for _ in range(top, height, y_step):
            rows += bytes([generator.randrange(5)]) + generator.randbytes((columns * pixel_bits + 7) // 8) if columns else b""
    return rows


def png(generator, colour_type, bits, samples, interlaced, flaw):
    """By hand; `flaw`: one of PNG_FLAWS."""
    width, height = size(generator)
    left = top = 0
    part_width, part_height = width, height
    if "part" in flaw:
        part_width, part_height = generator.randint(1, width), generator.randint(1, height)
        left, top = generator.randint(0, width - part_width), generator.randint(0, height - part_height)
    rows = png_rows(generator, part_width, part_height, bits * samples, interlaced)
    if "few rows" in flaw:
        rows = rows[: -generator.randint(1, len(rows))] if interlaced else rows[: len(rows) // part_height * generator.randint(0, part_height)]
    if flaw == "more rows":
        rows += generator.randbytes(100)
    if flaw == "wrong filter":
        rows = bytes([generator.randint(5, 255)]) + rows[1:]
    data = zlib.compress(rows, generator.randint(0, 9))
    if flaw == "wrong Adler-32":
        data = data[:-4] + generator.randbytes(4)
    if flaw == "no Adler-32":
        data = data[: -generator.randint(1, 4)]
    if flaw == "small window":
        data = b"\x08\x1d" + data[2:]
    if flaw == "wrong header":
        data = data[:1] + generator.randbytes(1) + data[2:]
    cuts = sorted(generator.choice([generator.randint(0, len(data)), max(0, len(data) - generator.randint(0, 6))]) for _ in range(3))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    file = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, interlaced))
    if colour_type == 3:
        file += png_chunk(b"PLTE", generator.randbytes(3 * generator.randint(1, 256)))
    if "part" in flaw or flaw == "frame":
        file += png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, part_width, part_height, left, top, 1, 10, 0, 0))
    for number, piece in enumerate(pieces):
        file += png_chunk(b"fdAT", struct.pack(">I", number + 1) + piece) if flaw == "frame" else png_chunk(b"IDAT", piece)
    return file + png_chunk(b"IEND", b"")


def bmps(generator):
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        for _ in range(3):
            yield "BMP", saved(picture(generator, *size(generator), mode), "BMP")
    for bits in (1, 4, 8, 16, 24, 32):
        for header in (12, 40, 52, 56, 64, 108, 124):
            for top_down in (False, True):
                yield f"BMP {bits} bits", bmp(generator, bits, header, top_down)
    for bits, masks in BMP_MASKS:
        for header in (40, 56, 108, 124):
            yield "BMP bit fields", bmp(generator, bits, header, False, masks)
    for nibbles in (False, True):
        for top_down in (False, True):
            for _ in range(12):
                yield "BMP run lengths", bmp_of_runs(generator, nibbles, top_down)


BMP_MASKS = [
    (16, (0xF800, 0x7E0, 0x1F, 0)),
    (16, (0x7C00, 0x3E0, 0x1F, 0)),
    (24, (0xFF0000, 0xFF00, 0xFF, 0)),
    (32, (0xFF0000, 0xFF00, 0xFF, 0)),
    (32, (0xFF000000, 0xFF0000, 0xFF00, 0)),
    (32, (0xFF000000, 0xFF00, 0xFF, 0)),
    (32, (0xFF000000, 0xFF0000, 0xFF00, 0xFF)),
    (32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
    (32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
    (32, (0xFF000000, 0xFF00, 0xFF, 0xFF0000)),
    (32, (0, 0, 0, 0)),
    (32, (0xFF, 0xFF00, 0xFF0000, 0)),
    (16, (0xF00, 0xF0, 0xF, 0)),
    (8, (0xE0, 0x1C, 3, 0)),
]


def bmp_palette(generator, bits, entry_bytes):
    """Of all lengths; grey ones are read otherwise by Pillow."""
    colours = generator.choice([1 << bits, 1 << bits, 2, max(1, (1 << bits) // 3)])
    if generator.random() < 0.3:
        values = [0, 255] if colours == 2 else range(colours)
        return colours, b"".join(bytes([value] * 3 + [0] * (entry_bytes - 3)) for value in values)
    return colours, generator.randbytes(entry_bytes * colours)


def bmp_file(header, palette, data, width, height, bits, top_down=False, compression=0, colours=0, masks=None, offset=None):
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        height = -height if top_down else height
        info = struct.pack("<IIiHHIIIIII", header, width, height, 1, bits, compression, len(data), 9, 9, colours, 0)
        inside = struct.pack("<IIII", *(masks or (0, 0, 0, 0)))
        info += inside[:12] if header == 40 and masks else b""
        info += (inside + bytes(100))[: max(0, header - 40)]
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start if offset is None else offset) + info + palette + data


def bmp(generator, bits, header, top_down, masks=None):
    width, height = size(generator)
    data = generator.randbytes((width * bits + 31) // 32 * 4 * height)
    colours, palette = bmp_palette(generator, bits, 3 if header == 12 else 4) if bits <= 8 else (0, b"")
    if header == 12 and bits <= 8:
        colours, palette = 0, generator.randbytes(3 << bits)
    if generator.random() < 0.2:
        palette += b"gap!"
    offset = generator.choice([None, None, None, 0, 14 + header])
    return bmp_file(header, palette, data, width, height, bits, top_down, 3 if masks else 0, colours, masks, offset)


def bmp_of_runs(generator, nibbles, top_down):
    width, height = generator.randint(1, 40), generator.randint(1, 30)
    data = bytearray()
    for _ in range(height):
        left = width
        while left > 0:
            count = generator.randint(1, min(left, 255))
            kind = generator.random()
            if kind < 0.4 and count >= 3:
                data += bytes([0, count]) + generator.randbytes((count + 1) // 2 if nibbles else count)
                data += b"\0" * (len(data) % 2)
            elif kind < 0.9:
                data += bytes([generator.choice([count, count, count, 255]), generator.randrange(256)])
            else:
                data += bytes([0, 2, count, 0])
            left -= count
        data += generator.choice([b"\0\0", b"\0\0", b""])
    data += b"\0\1"
    bits = 4 if nibbles else 8
    colours, palette = bmp_palette(generator, bits, 4)
    return bmp_file(40, palette, bytes(data), width, height, bits, top_down, 2 if nibbles else 1, colours)


TIFF_MODES = {
    None: ("1", "L", "LA", "P", "I;16", "I", "F", "RGB", "RGBA", "CMYK"),
    "packbits": ("1", "L", "P", "I;16", "RGB", "RGBA", "CMYK"),
    "tiff_lzw": ("1", "L", "LA", "P", "I;16", "I", "F", "RGB", "RGBA", "CMYK"),
    "tiff_adobe_deflate": ("1", "L", "P", "I;16", "RGB", "RGBA"),
    "jpeg": ("L", "RGB", "CMYK"),
    "group3": ("1",),
    "group4": ("1",),
    "tiff_ccitt": ("1",),
}


def tiffs(generator):
    for compression, modes in TIFF_MODES.items():
        for mode in modes:
            for rows in (None, 8):
                info = {} if rows is None else {278: rows}
                if compression in ("tiff_lzw", "tiff_adobe_deflate") and mode in ("L", "RGB", "RGBA") and rows:
                    info[317] = 2  # differences of neighbours
                image = picture(generator, *size(generator), mode)
                kind = f"TIFF {compression or 'raw'}"
                yield kind, saved(image, "TIFF", compression=compression, tiffinfo=info)
    for orientation in range(10):
        compression = "tiff_lzw" if 1 <= orientation <= 8 else None  # libtiff writes no others
        image = picture(generator, *size(generator))
        yield "TIFF orientation", saved(image, "TIFF", tiffinfo={274: orientation}, compression=compression)
    yield "TIFF orientation", saved(picture(generator, *size(generator)), "TIFF", tiffinfo={700: b'<x tiff:Orientation="8"/>'})
    frames = [picture(generator, 30, 20) for _ in range(3)]
    yield "TIFF pages", saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])
    for big in (False, True):
        yield "TIFF BigTIFF", saved(picture(generator, *size(generator)), "TIFF", big_tiff=big)
    for info in ({}, {274: 6}):
        info = {700: b'<x tiff:Orientation="8"/>', **info}
        yield "TIFF BigTIFF", saved(picture(generator, *size(generator)), "TIFF", big_tiff=True, tiffinfo=info)
    for samples, planar in ((1, 1), (3, 1), (3, 2)):
        for rows in (100, 7):
            yield "TIFF PackBits runs", tiff_of_long_runs(generator, samples, planar, rows)
    for photometric, bits, samples, extra, kind in TIFF_LAYOUTS:
        for order in "<>":
            for planar in (1, 2) if samples > 1 else (1,):
                for packed in (False, True):
                    for tiled in (False, True):
                        yield (
                            "TIFF tiles" if tiled else "TIFF strips",
                            tiff(generator, order, photometric, bits, samples, extra, kind, planar, packed, tiled),
                        )


TIFF_FLAWS = ("no lengths", "lengths of 0", "no rows", "no order", "odd sides", "called separate", "short palette", "no bits", "cut directory")


def tiffs_with_flaws(generator):
    """Not compressed, with a directory as Pillow takes it."""
    for photometric, bits, samples, extra, kind in TIFF_LAYOUTS:
        for order in "<>":
            for tiled in (False, True):
                layout = (generator, order, photometric, bits, samples, extra, kind, 1, False, tiled)
                for flaw in TIFF_FLAWS:
                    if flaw == "no rows" and (tiled or (photometric, bits, extra) not in ((1, 8, ()), (3, 8, ()), (2, 8, (2,)))):
                        continue  # Pillow takes it where it maps the whole picture into memory
                    if flaw == "cut directory" and (tiled or samples > 1):
                        continue  # nothing of use is left
                    if flaw == "called separate" and (samples > 1 or (bits in (12, 16) and kind == 1)):
                        continue  # there Pillow fails
                    if (flaw in ("short palette", "no bits")) != (photometric == 3) and flaw in ("short palette", "no bits", "cut directory"):
                        continue
                    yield f"TIFF {flaw}", tiff(*layout, flaw)


# Photometric interpretation, bits, samples, extra samples, sample format.
TIFF_LAYOUTS = [(photometric, bits, 1, (), 1) for photometric in (0, 1, 3) for bits in (1, 2, 4, 8)]
TIFF_LAYOUTS += [(0, 16, 1, (), 1), (1, 16, 1, (), 1), (1, 12, 1, (), 1), (1, 16, 1, (), 2), (1, 8, 1, (), 2)]
TIFF_LAYOUTS += [(1, 32, 1, (), 1), (1, 32, 1, (), 2), (1, 32, 1, (), 3), (0, 32, 1, (), 3), (1, 64, 1, (), 3)]
TIFF_LAYOUTS += [(1, 8, 2, (0,), 1), (1, 8, 2, (2,), 1), (3, 8, 2, (0,), 1), (3, 8, 2, (2,), 1)]
TIFF_LAYOUTS += [(2, bits, 3, (), 1) for bits in (8, 16)] + [(2, bits, 4, (extra,), 1) for bits in (8, 16) for extra in (0, 1, 2)]
TIFF_LAYOUTS += [(2, 8, 5, (1, 0), 1), (2, 8, 6, (2, 0, 0), 1), (5, 8, 4, (), 1), (5, 8, 5, (0,), 1), (5, 16, 4, (), 1), (8, 8, 3, (), 1)]


def tiff_file(order, entries, data, flaw=""):
    """Of {tag: (type, values)}: u16 3, u32 4. `data`: the strips or tiles, whose offsets and lengths are added."""
    start = 8
    offsets = []
    for piece in data:
        offsets.append(start)
        start += len(piece) + len(piece) % 2
    tiled = 322 in entries
    entries = {**entries, (324 if tiled else 273): (4, offsets)}
    if flaw != "no lengths":
        entries[325 if tiled else 279] = (4, [0 if flaw == "lengths of 0" else len(piece) for piece in data])
    directory, values = b"", b""
    values_at = start + 2 + 12 * len(entries) + 4
    for tag, (kind, numbers) in sorted(entries.items(), reverse=flaw == "no order"):
        body = struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        if len(body) > 4:
            directory += struct.pack(order + "HHII", tag, kind, len(numbers), values_at + len(values))
            values += body
        else:
            directory += struct.pack(order + "HHI", tag, kind, len(numbers)) + body.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", start)
    pieces = b"".join(piece + b"\0" * (len(piece) % 2) for piece in data)
    if flaw == "cut directory":
        return head + pieces + struct.pack(order + "H", len(entries) + 1) + directory + bytes(5)
    return head + pieces + struct.pack(order + "H", len(entries)) + directory + bytes(4) + values


def tiff(generator, order, photometric, bits, samples, extra, kind, planar, packed, tiled, flaw=""):
    """Random samples in strips or tiles, side by side or plane by plane, deflated or as they are."""
    width, height = size(generator)
    piece_width, piece_height = (32, 16) if tiled else (width, generator.choice([height, 5]))
    if flaw == "odd sides":
        piece_width, piece_height = (generator.choice([8, 10, 20]), 7) if tiled else (width, 3)
    if flaw == "no rows":
        piece_height = height
    piece_samples = samples if planar == 1 else 1
    row_bytes = (piece_width * bits * piece_samples + 7) // 8
    across = -(-width // piece_width)
    data = []
    for _ in range(1 if planar == 1 else samples):
        for top in range(0, height, piece_height):
            rows = piece_height if tiled else min(piece_height, height - top)
            for _ in range(across):
                data.append(tiff_samples(generator, order, bits, kind, row_bytes * rows))
    if packed:
        data = [zlib.compress(piece) for piece in data]
    entries = {
        256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * samples), 259: (3, [8 if packed else 1]),
        262: (3, [photometric]), 277: (3, [samples]), 284: (3, [planar]), 339: (3, [kind] * samples),
    }  # fmt: skip
    if extra:
        entries[338] = (3, extra)
    if photometric == 3:
        entries[320] = (3, [generator.randrange(65536) for _ in range(3 << bits)])
    entries.update({322: (4, [piece_width]), 323: (4, [piece_height])} if tiled else {278: (4, [piece_height])})
    if flaw == "no rows":
        entries[278] = (4, [0])
    if flaw == "called separate":
        entries[284] = (3, [2])
    if flaw == "short palette":
        entries[320] = (3, entries[320][1][: 3 * generator.randint(1, (1 << bits) - 1)])
    if flaw == "no bits":
        del entries[258]
    return tiff_file(order, entries, data, flaw)


def tiff_of_long_runs(generator, samples, planar, rows):
    """PackBits as one stream a strip: runs reach beyond their row."""
    width, height = size(generator)
    data = []
    for _ in range(1 if planar == 1 else samples):
        for top in range(0, height, rows):
            left = width * min(rows, height - top) * (samples if planar == 1 else 1)
            packed = bytearray()
            while left > 0:
                count = min(left, generator.randint(2, 128))
                same = count > 1 and generator.random() < 0.5
                packed += bytes([257 - count]) + generator.randbytes(1) if same else bytes([count - 1]) + generator.randbytes(count)
                left -= count
            data.append(bytes(packed))
    entries = {
        256: (4, [width]), 257: (4, [height]), 258: (3, [8] * samples), 259: (3, [32773]), 262: (3, [2 if samples == 3 else 1]),
        277: (3, [samples]), 278: (4, [rows]), 284: (3, [planar]),
    }  # fmt: skip
    return tiff_file("<", entries, data)


def tiff_samples(generator, order, bits, kind, size):
    if bits >= 16 and generator.random() < 0.5:  # small numbers, which are not clipped
        count = size * 8 // bits
        code = {(16, 1): "H", (16, 2): "h", (32, 1): "I", (32, 2): "i", (32, 3): "f", (64, 3): "d"}[bits, kind]
        return struct.pack(f"{order}{count}{code}", *(generator.randrange(300) for _ in range(count)))
    return generator.randbytes(size)


def damaged(generator, content):
    """A copy with some bytes changed, or cut off."""
    changed = bytearray(content)
    if generator.random() < 0.3:
        del changed[generator.randrange(len(changed)) :]
    for _ in range(generator.randint(0, 3)):
        if changed:
            # Mostly where the headers are.
            changed[min(len(changed) - 1, int(len(changed) * generator.random() ** 3))] = generator.randrange(256)
    return bytes(changed)


def files(seed):
    """(kind, bytes): pictures of every kind, whole."""
    generator = random.Random(seed)
    for maker in (jpegs, webps, gifs, pngs, bmps, tiffs, tiffs_with_flaws, avifs, gain_maps, scaled_avifs):
        yield from maker(generator)
