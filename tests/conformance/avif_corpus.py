"""AVIF files: what Pillow and avifenc write, and by hand what neither does."""

import functools
import itertools
import io
import pathlib
import struct
import subprocess
import tempfile

from PIL import Image

from pictures import exif, picture, saved, size

SAMPLINGS = ("4:4:4", "4:2:2", "4:2:0", "4:0:0")


def noise(generator, width, height, mode):
    """Every colour, and so every corner of the conversion."""
    return Image.frombytes(mode, (width, height), generator.randbytes(width * height * len(mode)))


@functools.cache
def avifenc(contents, *options):
    """What avifenc makes of a PNG, or a sequence of them."""
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder, "out.avif")
        sources = [pathlib.Path(folder, f"{number}.png") for number in range(len(contents))]
        for source, content in zip(sources, contents):
            source.write_bytes(content)
        subprocess.run(["avifenc", "--speed", "10", *options, *sources, target], check=True, capture_output=True)
        return target.read_bytes()


def avifs(generator):
    for mode in ("RGB", "RGBA", "L", "LA"):
        for sampling in SAMPLINGS:
            for limits in ("full", "limited"):
                for quality in (30, 90, 100):
                    image = generator.choice([picture, noise])(generator, *size(generator), mode)
                    options = {"subsampling": sampling, "range": limits, "quality": quality, "speed": 10}
                    yield f"AVIF {sampling}", saved(image, "AVIF", **options)
                    if mode == "RGBA":
                        yield "AVIF premultiplied", saved(image, "AVIF", alpha_premultiplied=True, **options)
    yield from deep(generator)
    yield from matrices(generator)
    yield from turned(generator)
    yield from sequences(generator)
    yield from grids(generator)
    yield from containers(generator)
    yield from greys(generator)


def deep(generator):
    for bits in ("10", "12"):
        for sampling in SAMPLINGS:
            for limits in ("full", "limited"):
                for mode in ("RGB", "RGBA"):
                    image = saved(generator.choice([picture, noise])(generator, *size(generator), mode), "PNG")
                    options = ("--depth", bits, "--yuv", sampling.replace(":", ""), "--range", limits, "--min", "0", "--max", "20")
                    yield f"AVIF {bits} bits", avifenc((image,), *options)
                    if mode == "RGBA":
                        yield "AVIF premultiplied", avifenc((image,), *options, "--premultiply")
    photo = saved(picture(generator, 90, 70), "PNG")
    for bits in ("8", "10"):
        yield "AVIF film grain", avifenc((photo,), "--depth", bits, "--min", "20", "--max", "30", "--advanced", "film-grain-test=3")


def maker():
    """EXIF without an orientation."""
    block = Image.Exif()
    block[0x010F] = "maker"
    return block


def with_colours(content, primaries, matrix, full_range):
    """The file with other numbers in its `colr` box; those in the AV1 data do not count then."""
    at = content.index(b"colrnclx") + 8
    return content[:at] + struct.pack(">HHHB", primaries, 13, matrix, full_range << 7) + content[at + 7 :]


def matrices(generator):
    for sampling in SAMPLINGS:
        for mode in ("RGB", "RGBA"):
            image = noise(generator, *size(generator), mode)
            plain = saved(image, "AVIF", subsampling=sampling, quality=100, speed=10)
            options = ("--yuv", sampling.replace(":", ""), "--minalpha", "20", "--maxalpha", "40")
            ten, twelve = (avifenc((saved(image, "PNG"),), "--depth", bits, *options) for bits in ("10", "12"))
            for content in (plain, ten, twelve):
                for matrix, full_range in itertools.product((0, 1, 2, 4, 5, 6, 7, 8, 9, 12, 15, 16), (0, 1)):
                    of_rgb = matrix == 0 and sampling in ("4:2:0", "4:2:2")
                    if of_rgb or (matrix in (8, 16) and not full_range) or (matrix == 16 and content is not ten):
                        continue
                    changed = with_colours(content, 1, matrix, full_range)
                    yield "AVIF matrices", changed
                    if mode == "RGBA":
                        yield "AVIF premultiplied", Coded(changed).file(premultiplied=True)
    for matrix, full_range in itertools.product(range(20), (0, 1)):
        yield "AVIF matrices", with_colours(plain, 1, matrix, full_range)
    for primaries in range(24):
        yield "AVIF primaries", with_colours(plain, primaries, 12, 1)


def turned(generator):
    for orientation in range(10):
        yield "AVIF orientation", saved(picture(generator, *size(generator)), "AVIF", exif=exif(orientation))
    xmp = b'<x tiff:Orientation="8"/>'
    yield "AVIF orientation", saved(picture(generator, *size(generator)), "AVIF", xmp=xmp)
    yield "AVIF orientation", saved(picture(generator, *size(generator)), "AVIF", xmp=xmp, exif=exif(3))
    coded = Coded(saved(picture(generator, 37, 22), "AVIF"))
    for angle in (None, 0, 1, 2, 3):
        for axis in (None, 0, 1):
            for block in (None, exif(1), exif(6), exif(9), maker()):
                for packet in (None, xmp):
                    turns = [] if angle is None else [(box(b"irot", bytes([angle])), True)]
                    turns += [] if axis is None else [(box(b"imir", bytes([axis])), True)]
                    data = block and struct.pack(">I", 6) + b"Exif\0\0" + block.tobytes()[6:]
                    yield "AVIF orientation", coded.file(properties=turns, exif=data, xmp=packet)
    for data in (b"", b"\0\0\0\0", b"\0\0\0\x06Exif\0\0", struct.pack(">I", 2) + b"??" + exif(6).tobytes()[6:]):
        yield "AVIF broken EXIF", coded.file(exif=data + b"\0" * (data == b""))
    yield "AVIF orientation", coded.file(exif=struct.pack(">I", 0) + exif(6).tobytes()[6:])


def sequences(generator):
    for mode in ("RGB", "RGBA", "L"):
        for count in (1, 3):
            width, height = size(generator)
            frames = [picture(generator, width, height, mode) for _ in range(count)]
            for more in ({}, {"exif": maker(), "xmp": b'<x tiff:Orientation="8"/>'}):
                options = {"append_images": frames[1:], "duration": 100, **more}
                yield "AVIF sequence", saved(frames[0], "AVIF", save_all=True, **options)
            for time_scale in (0, 1) if count > 1 else ():
                changed = bytearray(saved(frames[0], "AVIF", save_all=True, **options))
                struct.pack_into(">I", changed, changed.index(b"mdhd") + 24, time_scale)
                yield "AVIF sequence", bytes(changed)
            # Pillow crashes when it writes such.
            for turn in (("--irot", "1"), ("--irot", "3", "--imir", "0")):
                yield "AVIF sequence", avifenc(tuple(saved(frame, "PNG") for frame in frames), *turn)


def greys(generator):
    """Grey in only one of container and AV1 data: Pillow takes bytes of RGB for grey, or has too few of them."""
    for bits in ("8", "10", "12"):
        for sampling in ("420", "422", "444"):
            image = noise(generator, *size(generator), "RGBA")
            coded, grey = (
                Coded(avifenc((saved(image.convert(mode), "PNG"),), "--depth", bits, "--yuv", chroma, "--min", "0", "--max", "20"))
                for mode, chroma in (("RGBA", sampling), ("L", "400"))
            )
            for one, other in ((coded, grey), (grey, coded)):
                one.configurations[0], said = other.configurations[0], one.configurations[0]
                for content in (one.file(), one.file(premultiplied=len(one.configurations) > 1)):
                    yield "AVIF grey in one place", content
                alpha = one.configurations[1:]
                one.configurations[1:] = []
                yield "AVIF grey in one place", one.file()
                one.configurations = [said, *alpha]


def box(kind, *parts):
    body = b"".join(parts)
    return struct.pack(">I", 8 + len(body)) + kind + body


def full_box(kind, version, flags, *parts):
    return box(kind, struct.pack(">I", version << 24 | flags), *parts)


class Item:
    def __init__(self, kind, data, properties=(), references=(), content_type=None):
        self.kind, self.data, self.properties, self.references = kind, data, properties, references
        self.content_type = content_type


def avif_file(items, wide=False, in_idat=False, pieces=1, brands=(b"avif", b"mif1"), groups=(), after=b""):
    """Items, numbered from 1; the first is the primary one. A property is (box, essential); a reference (kind, [numbers])."""
    containers = []
    for item in items:
        containers += [one for one, _ in item.properties if one not in containers]
    number = ">I" if wide else ">H"

    def associations(item):
        entries = [(0x80 if essential else 0) | (containers.index(one) + 1) for one, essential in item.properties]
        if wide:
            return bytes([len(entries)]) + b"".join(struct.pack(">H", (entry & 0x80) << 8 | entry & 0x7F) for entry in entries)
        return bytes([len(entries), *entries])

    def cut(data):
        step = -(-len(data) // pieces)
        return [data[at : at + step] for at in range(0, len(data), step)]

    def meta(offset):
        locations = b""
        for identifier, item in enumerate(items, 1):
            extents = cut(item.data)
            locations += struct.pack(number, identifier) + (struct.pack(">H", int(in_idat)) if wide or in_idat else b"")
            locations += struct.pack(">HH", 0, len(extents))
            for extent in extents:
                locations += struct.pack(">II", offset, len(extent))
                offset += len(extent)
        version = 2 if wide else int(in_idat)
        count = struct.pack(number, len(items))
        infos = []
        for identifier, item in enumerate(items, 1):
            text = b"\0" + (item.content_type + b"\0" if item.content_type else b"")
            infos.append(full_box(b"infe", 3 if wide else 2, 0, struct.pack(number, identifier), b"\0\0", item.kind, text))
        references = [
            box(kind, struct.pack(number, identifier), struct.pack(">H", len(to)), *(struct.pack(number, one) for one in to))
            for identifier, item in enumerate(items, 1)
            for kind, to in item.references
        ]
        entries = [struct.pack(number, identifier) + associations(item) for identifier, item in enumerate(items, 1) if item.properties]
        ipma = full_box(b"ipma", int(wide), int(wide), struct.pack(">I", len(entries)), *entries)
        return full_box(
            b"meta", 0, 0,
            full_box(b"hdlr", 0, 0, bytes(4), b"pict", bytes(13)),
            full_box(b"pitm", int(wide), 0, struct.pack(number, 1)),
            full_box(b"iloc", version, 0, b"\x44\x00", count, locations),
            full_box(b"iinf", int(wide), 0, struct.pack(number, len(items)), *infos),
            full_box(b"iref", int(wide), 0, *references) if references else b"",
            box(b"iprp", box(b"ipco", *containers), ipma),
            box(b"idat", data) if in_idat else b"",
            box(b"grpl", *groups) if groups else b"",
        )  # fmt: skip

    data = b"".join(item.data for item in items)
    head = box(b"ftyp", brands[0], bytes(4), *brands)
    body = meta(0 if in_idat else len(head) + len(meta(0)) + 8)
    return head + body + (b"" if in_idat else box(b"mdat", data)) + after


class Coded:
    """The AV1 data of a file that Pillow or avifenc wrote, with alpha or without, to be wrapped anew."""

    def __init__(self, content):
        at = content.index(b"iloc") + 4
        count = struct.unpack_from(">H", content, at + 6)[0]
        places = [struct.unpack_from(">HHHII", content, at + 8 + 14 * i) for i in range(count)]
        self.data = [content[offset : offset + length] for _, _, _, offset, length in places]
        self.configurations, at = [], 0
        while (at := content.find(b"av1C", at + 1)) >= 0:
            self.configurations.append(box(b"av1C", content[at + 4 : at + 8]))
        at = content.index(b"ispe")
        self.extent = box(b"ispe", content[at + 4 : at + 16])
        at = content.index(b"colrnclx")
        self.colours = box(b"colr", content[at + 4 : at + 15])

    def items(self, properties=(), first=1, links=(b"auxl",)):
        """Colour, and alpha if there is any, numbered from `first`."""
        items = [Item(b"av01", self.data[0], [(self.extent, False), (self.configurations[0], True), (self.colours, False), *properties])]
        if len(self.configurations) > 1:
            auxiliary = full_box(b"auxC", 0, 0, b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")
            own = [(self.extent, False), (self.configurations[1], True), (auxiliary, False)]
            items.append(Item(b"av01", self.data[1], own, [(link, [first]) for link in links]))
        return items

    def file(self, properties=(), exif=None, xmp=None, premultiplied=False, **options):
        items = self.items(properties)
        if premultiplied:
            items[0].references = [(b"prem", [2])]
        if exif is not None:
            items.append(Item(b"Exif", exif, references=[(b"cdsc", [1])]))
        if xmp is not None:
            items.append(Item(b"mime", xmp, references=[(b"cdsc", [1])], content_type=b"application/rdf+xml"))
        return avif_file(items, **options)


def extent(width, height):
    return full_box(b"ispe", 0, 0, struct.pack(">II", width, height))


def grid_content(columns, rows, width, height, wide):
    return bytes([0, int(wide), rows - 1, columns - 1]) + struct.pack(">II" if wide else ">HH", width, height)


def grids(generator):
    def tiles(count, side, mode, sampling):
        return [Coded(saved(picture(generator, side, side, mode), "AVIF", subsampling=sampling, speed=10)) for _ in range(count)]

    for mode, sampling in (("RGB", "4:2:0"), ("RGB", "4:4:4"), ("RGB", "4:2:2"), ("L", "4:0:0"), ("RGBA", "4:2:0")):
        for columns, rows, width, height in ((2, 2, 128, 128), (3, 1, 150, 64), (1, 2, 50, 90), (2, 2, 127, 101)):
            coded = tiles(columns * rows, 64, mode, sampling)
            size_ = (extent(width, height), False)
            grid = grid_content(columns, rows, width, height, generator.random() < 0.5)
            items = [Item(b"grid", grid, [size_, (coded[0].colours, False)], [(b"dimg", [2 + i for i in range(len(coded))])])]
            items += [one.items()[0] for one in coded]
            yield "AVIF grid", avif_file(items)
            if mode == "RGBA":
                # Alpha as a grid of its own, and of each tile.
                first = len(items) + 1
                alphas = [one.items()[1] for one in coded]
                parts = [(b"auxl", [1]), (b"dimg", [first + 1 + i for i in range(len(coded))])]
                own = Item(b"grid", grid, [size_, alphas[0].properties[2]], parts)
                parts = [Item(b"av01", one.data, one.properties[:2]) for one in alphas]
                yield "AVIF grid", avif_file([*items, own, *parts])
                parts = [Item(b"av01", one.data, one.properties, [(b"auxl", [2 + i])]) for i, one in enumerate(alphas)]
                yield "AVIF grid", avif_file([*items, *parts])
                yield "AVIF grid", avif_file([*items, *parts[1:]])
    for side, width in ((48, 96), (64, 64), (64, 130), (66, 132)):
        coded = tiles(4, side, "RGB", "4:2:0")
        grid = grid_content(2, 2, width, 2 * side, False)
        items = [Item(b"grid", grid, [(extent(width, 2 * side), False)], [(b"dimg", [2, 3, 4, 5])])]
        yield "AVIF grid", avif_file(items + [one.items()[0] for one in coded])
    other = tiles(1, 66, "RGB", "4:4:4")
    yield "AVIF grid", avif_file(items + [one.items()[0] for one in coded[:3] + other])
    one = saved(picture(generator, 64, 64), "PNG")
    for other in ("1/13/6", "9/13/6", "1/1/6", "1/13/5"):
        unlike = [Coded(avifenc((one,), "--cicp", numbers, "--yuv", "444")).items()[0] for numbers in ("1/13/6", "1/13/6", "1/13/6", other)]
        grid = grid_content(2, 2, 128, 128, False)
        yield "AVIF grid", avif_file([Item(b"grid", grid, [(extent(128, 128), False)], [(b"dimg", [2, 3, 4, 5])]), *unlike])
    large = Coded(saved(Image.linear_gradient("L").resize((3000, 1600)), "AVIF", speed=10))
    for width, height in ((100, 70), (2990, 1590)):
        whole = Item(b"grid", grid_content(1, 1, width, height, False), [(extent(width, height), False)], [(b"dimg", [2])])
        yield "AVIF grid", avif_file([whole, *large.items()])
    image = saved(noise(generator, 128, 192, "RGBA"), "PNG")
    for bits in ("10", "12"):
        yield "AVIF grid", avifenc((image,), "--grid", "2x3", "--depth", bits, "--yuv", "420")


def containers(generator):
    for mode in ("RGB", "RGBA", "L"):
        coded = Coded(saved(picture(generator, *size(generator), mode), "AVIF"))
        for wide in (False, True):
            for in_idat in (False, True):
                for pieces in (1, 3):
                    yield "AVIF containers", coded.file(wide=wide, in_idat=in_idat, pieces=pieces)
        for brands in ((b"mif1", b"avif"), (b"msf1", b"mif1", b"avif"), (b"avif",), (b"mif1", b"heic"), (b"miaf", b"avif")):
            yield "AVIF containers", coded.file(brands=brands)
        yield "AVIF containers", coded.file(after=b"what follows is not looked at")
        depths = [full_box(b"pixi", 0, 0, planes) for planes in (b"\x03\x08\x08\x08", b"\x03\x0a\x0a\x0a", b"\x02\x08\x0a")]
        profile = box(b"colr", b"prof", b"any profile")
        crop = box(b"clap", struct.pack(">8I", 5, 1, 5, 1, 0, 1, 0, 1))
        for more in (
            *([(one, False)] for one in depths),
            [(profile, False)],
            [(profile, False), (box(b"colr", b"rICC", b"another"), False)],
            [(coded.colours, False)],
            [(crop, True)],
            [(crop, False)],
            [(box(b"what", b"is this"), False)],
            [(box(b"what", b"is this"), True)],
            [(box(b"a1op", b"\0"), True)],
            [(box(b"lsel", b"\0\0"), True)],
            [(box(b"lsel", b"\0\1"), True)],
            [(box(b"a1lx", b"\0" + struct.pack(">HHH", 5, 0, 0)), False)],
            [(box(b"lsel", b"\xff\xff"), True), (box(b"a1lx", b"\0" + struct.pack(">HHH", 5, 0, 0)), False)],
            [(box(b"lsel", b"\0\0"), True), (box(b"a1lx", bytes(7)), False)],
            [(box(b"irot", b"\4"), True)],
        ):
            yield "AVIF properties", coded.file(properties=more)
