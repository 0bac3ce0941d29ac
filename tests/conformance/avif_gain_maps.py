"""AVIF files with gain maps, which Pillow's libavif looks at and does not decode, and so refuses where they are broken."""

import struct

from avif_corpus import Coded, Item, avif_file, box, extent, full_box, grid_content
from pictures import picture, saved

SHOWN, OWN, TILE = ((extent(*size), False) for size in ((64, 48), (32, 24), (64, 64)))
TURNS = (
    (box(b"irot", b"\1"), True),
    (box(b"imir", b"\1"), True),
    (box(b"pasp", struct.pack(">II", 1, 1)), False),
    (box(b"clap", struct.pack(">8I", 5, 1, 5, 1, 0, 1, 0, 1)), True),
)
UNKNOWN = (box(b"what", b"x"), True)
COLOURS = [(box(b"colr", b"nclx" + struct.pack(">HHHB", 9, 16, 9, full << 7)), False) for full in (0, 1)]
PROFILES = [(box(b"colr", kind, b"x"), False) for kind in (b"prof", b"rICC")]


def fraction(over, under=1):
    return struct.pack(">iI", over, under)


HEADROOMS = [fraction(0), fraction(1)]
CHANNEL = [fraction(0), fraction(1), fraction(1), fraction(1, 64), fraction(1, 64)]


def numbers(version=0, least=0, writer=0, channels=1, headrooms=HEADROOMS, channel=CHANNEL, tail=b""):
    head = struct.pack(">BHHB", version, least, writer, 0x80 if channels == 3 else 0)
    return head + b"".join(headrooms) + b"".join(channel) * channels + tail


def with_one(values, at, value):
    return [*values[:at], value, *values[at + 1 :]]


def alternatives(*items, kind=b"altr"):
    return full_box(kind, 0, 0, struct.pack(">II", 100, len(items)), *(struct.pack(">I", item) for item in items))


def gain_maps(generator):
    base = Coded(saved(picture(generator, 64, 48), "AVIF", speed=10))
    gain = Coded(saved(picture(generator, 32, 24, "L"), "AVIF", speed=10))
    configuration = (gain.configurations[0], True)

    def gains(*properties, kind=b"av01", own=(OWN, configuration), data=gain.data[0], to=()):
        return Item(kind, data, [*own, *properties], list(to))

    def grid(content, parts=(4,), tiles=(b"av01",), more=()):
        items = [Item(kind, gain.data[0], [TILE, configuration, *more]) for kind in tiles]
        return {"of": [gains(kind=b"grid", own=[TILE], data=content, to=[(b"dimg", parts)] if parts else []), *items]}

    def file(data=numbers(), properties=(SHOWN,), parts=(1, 3), of=(gains(),), groups=(alternatives(2, 1),), turns=(), brand=b"tmap"):
        items = [Item(b"av01", base.data[0], [SHOWN, (base.configurations[0], True), (base.colours, False), *turns])]
        items.append(Item(b"tmap", data, list(properties), [(b"dimg", parts)] if parts else []))
        return "AVIF gain map", avif_file([*items, *of], brands=(b"avif", b"mif1", brand), groups=groups)

    yield file()
    for parts in ((1,), (1, 3, 4), (), (3, 1), (1, 9)):
        for groups in ((alternatives(2, 1),), ()):
            yield file(parts=parts, of=[gains(), gains()], groups=groups)
        yield file(parts=parts, brand=b"miaf")
    for data in (numbers(), b"\0", b"\1"):
        for groups in ([(1, 2)], [(2,)], [(2,), (2, 1)], [(1, 2), (2, 1)], [(2, 1), (1, 2)], [(5, 2, 6, 1)]):
            yield file(data, groups=[alternatives(*group) for group in groups])
        yield file(data, groups=[alternatives(2, 1, kind=b"ster")])
        yield file(data, properties=())
        yield file(data, of=[gains(kind=b"hvc1")])
    whole = numbers()
    broken = [whole[:-1], whole[:3], numbers(tail=b"x"), numbers(writer=1, tail=b"x"), numbers(least=1), numbers(least=1, writer=1)]
    broken += [numbers(channels=3), numbers(channels=3)[:-4], numbers(channel=with_one(CHANNEL, 0, fraction(-1)))]
    broken += [numbers(headrooms=with_one(HEADROOMS, at, fraction(1, 0))) for at in range(2)]
    broken += [numbers(channel=with_one(CHANNEL, at, fraction(1, 0))) for at in range(5)]
    broken += [numbers(channel=with_one(CHANNEL, at, fraction(value, 3))) for at in range(5) for value in (-2, 0, 4)]
    for data in broken:
        yield file(data)
    for properties in ((), (TILE,), (SHOWN, *COLOURS), (SHOWN, *PROFILES), (SHOWN, COLOURS[0], PROFILES[0]), (SHOWN, UNKNOWN)):
        yield file(properties=properties)
    for turn in TURNS:
        yield file(properties=(SHOWN, turn))
        yield file(of=[gains(turn)])
        yield file(turns=[turn])
    for of in (
        gains(own=[OWN]), gains(kind=b"hvc1"), gains(data=b"garbage"), gains(UNKNOWN), gains(*COLOURS), gains(*PROFILES),
        gains((full_box(b"pixi", 0, 0, b"\1\x0a"), False)), gains(to=[(b"thmb", [1])]),
    ):  # fmt: skip
        yield file(of=[of])
    one, two = grid_content(1, 1, 64, 64, False), grid_content(2, 1, 128, 64, False)
    for content in (one, two, one + b"x", one[:4], b"\1", grid_content(1, 1, 0, 64, False), grid_content(1, 1, 30000, 30000, True)):
        yield file(**grid(content))
        yield file(**grid(content, parts=(4, 5), tiles=(b"av01", b"av01")))
        yield file(**grid(content, parts=()))
        yield file(**grid(content, tiles=[b"hvc1"]))
        yield file(**grid(content, more=[UNKNOWN]), properties=(SHOWN, TURNS[0]))
