"""AVIF files that Pillow's libavif scales: the AV1 data have another size than the container says."""

import itertools
import struct

from avif_corpus import SAMPLINGS, Coded, Item, avif_file, avifenc, box, extent, full_box, grid_content, noise
from pictures import picture, saved

ALPHA = full_box(b"auxC", 0, 0, b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0")
TURNS = [(box(b"irot", b"\1"), True), (box(b"imir", b"\0"), True)]
# Each way that libyuv has: by itself, along one axis, and mixed with others.
FACTORS = ((3, 4), (1, 2), (3, 8), (1, 4), (1, 3), (2, 1), (1, 1), (1, 5), (5, 12), (5, 8), (7, 6), (17, 4))

# Two spatial layers, 12 x 8 and 24 x 16 pixels, 4:2:0; written by libavif with aom.
LAYERS = (
    "12000a0c0013010080810efe6d7c842036002512016f0017000f721e1e1777534d348b1f38e01e1c55badfa3e6cd72f8a07161a19c84465e",
    "36081c30038040000006eabc3c2ceea28a2816224500d684ebff3c6d406a60",
)


def coded(generator, width, height, mode="RGB", bits=8, sampling="4:2:0", limits="full"):
    image = generator.choice([picture, noise])(generator, width, height, mode)
    if bits == 8:
        return Coded(saved(image, "AVIF", subsampling=sampling, range=limits, quality=90, speed=10))
    options = ("--depth", str(bits), "--yuv", sampling.replace(":", ""), "--range", limits, "--min", "0", "--max", "20")
    return Coded(avifenc((saved(image, "PNG"),), *options))


def of_size(width, height, colour, alpha=None, premultiplied=False, properties=()):
    """A file that says that size, of the first item's data of one or two files."""
    says = (extent(width, height), False)
    own = [says, (colour.configurations[0], True), (colour.colours, False), *properties]
    items = [Item(b"av01", colour.data[0], own, [(b"prem", [2])] if premultiplied else [])]
    if alpha is not None:
        items.append(Item(b"av01", alpha.data[0], [says, (alpha.configurations[0], True), (ALPHA, False)], [(b"auxl", [1])]))
    return avif_file(items)


def scaled_avifs(generator):
    yield from every_factor(generator)
    yield from any_sizes(generator)
    yield from alphas(generator)
    yield from scaled_grids(generator)
    yield from scaled_sequences(generator)
    yield from layers()
    yield from reinterpreted(generator)
    yield from turned_alphas(generator)


def every_factor(generator):
    width, height = 240, 120
    for bits in (8, 10, 12):
        for sampling in SAMPLINGS:
            source = coded(generator, width, height, "RGB", bits, sampling, generator.choice(["full", "limited"]))
            for up, down in FACTORS:
                wide, high = width * up // down, height * up // down
                targets = [(wide, high), (wide, height), (width, high), (wide - 1, high - 1)]
                targets.append((wide, height * generator.randint(1, 20) // generator.randint(5, 15) + 1))
                for target in generator.sample(targets, 3 if bits == 8 else 1):
                    yield f"AVIF scaled, {bits} bits", of_size(*target, source, properties=TURNS if generator.random() < 0.1 else ())


def any_sizes(generator):
    sides = (1, 1, 2, 3, 5, 8, 31, 64, 65)
    for bits in (8, 10, 12):
        for sampling in SAMPLINGS:
            for _ in range(6):
                source = coded(generator, generator.choice(sides), generator.choice(sides), "RGB", bits, sampling)
                for _ in range(2):
                    yield "AVIF scaled, any size", of_size(generator.choice(sides), generator.choice(sides), source)
    # Sums of many rows: vectors saturate where what is left of a row wraps.
    for width, height, target in ((70, 620, (3, 2)), (47, 530, (9, 1)), (600, 300, (1, 1))):
        white = saved(noise(generator, width, height, "RGB").point(lambda value: 255 - value // 16), "PNG")
        for options in (("--yuv", "444"), ("--yuv", "444", "--depth", "12")):
            yield "AVIF scaled, any size", of_size(*target, Coded(avifenc((white,), "--min", "0", "--max", "10", *options)))


def alphas(generator):
    """Alpha counts where it was multiplied in; it may be scaled alone, and have a limited range."""
    for bits in (8, 10, 12):
        for sampling in SAMPLINGS:
            for limits in ("full", "limited"):
                small, large = ((40, 24), (64, 48))
                colours = [coded(generator, *size, "RGB", bits, sampling) for size in (small, large)]
                greys = [coded(generator, *size, "L", bits, "4:0:0", limits) for size in (small, large)]
                for colour, alpha in zip((*colours, colours[0]), (greys[1], *greys)):
                    for target in generator.sample((small, large, (32, 24), (51, 17)), 2):
                        yield "AVIF scaled alpha", of_size(*target, colour, alpha, premultiplied=True)
                yield "AVIF scaled alpha", of_size(*small, colours[0], greys[1])
    yield "AVIF scaled alpha", of_size(30, 20, coded(generator, 30, 20), coded(generator, 30, 20, "L", 10, "4:0:0"))


def scaled_grids(generator):
    def grid(width, height, parts, alphas=()):
        content, size = grid_content(2, 2, width, height, False), (extent(width, height), False)
        items = [Item(b"grid", content, [size], [(b"dimg", [2, 3, 4, 5])])]
        items[0].references += [(b"prem", [6])] if alphas else []
        for part, own in parts:
            items.append(Item(b"av01", part.data[0], [(extent(*own), False), (part.configurations[0], True), (part.colours, False)]))
        if alphas:
            items.append(Item(b"grid", content, [size, (ALPHA, False)], [(b"auxl", [1]), (b"dimg", [7, 8, 9, 10])]))
        for part, own in alphas:
            items.append(Item(b"av01", part.data[0], [(extent(*own), False), (part.configurations[0], True)]))
        return avif_file(items)

    for bits in (8, 10):
        for sampling in SAMPLINGS if bits == 8 else ("4:2:0",):
            sizes = ((64, 64), (128, 128), (48, 48), (70, 90))
            mode = "L" if sampling == "4:0:0" else "RGB"
            parts = [coded(generator, *size, mode, bits, sampling) for size in sizes]
            greys = {limits: [coded(generator, *size, "L", bits, "4:0:0", limits) for size in sizes] for limits in ("full", "limited")}
            for own in ((64, 64), (66, 80), (96, 64), (65, 64), (32, 64)):
                said = [(part, own) for part in parts]
                yield "AVIF scaled grid", grid(2 * own[0], 2 * own[1], said)
                yield "AVIF scaled grid", grid(2 * own[0] - 10, 2 * own[1] - 6, said)
                for limits in ("full", "limited"):
                    yield "AVIF scaled grid", grid(2 * own[0], 2 * own[1], said, [(part, own) for part in greys[limits]])
            mixed = [(part, (64, 64)) for part in greys["limited"][:2] + greys["full"][2:]]
            yield "AVIF scaled grid", grid(128, 128, [(part, (64, 64)) for part in parts], mixed)
            yield "AVIF scaled grid", grid(128, 128, list(zip(parts, ((64, 64), (64, 64), (64, 64), (66, 64)))))


def scaled_sequences(generator):
    for mode in ("RGB", "RGBA"):
        frames = [picture(generator, 48, 32, mode) for _ in range(2)]
        content = saved(frames[0], "AVIF", save_all=True, append_images=frames[1:], duration=100)
        for width, height in ((48, 32), (36, 24), (50, 70), (7, 200)):
            changed, at = bytearray(content), 0
            while (at := content.find(b"tkhd", at + 1)) >= 0:
                struct.pack_into(">II", changed, at - 8 + struct.unpack_from(">I", content, at - 4)[0] - 4, width << 16, height << 16)
            yield "AVIF scaled sequence", bytes(changed)


def layers():
    data = [bytes.fromhex(layer) for layer in LAYERS]
    configuration, sizes = box(b"av1C", b"\x81\0\x0c\0"), box(b"a1lx", b"\0" + struct.pack(">HHH", len(data[0]), 0, 0))
    for size in ((24, 16), (12, 8), (30, 9)):
        for own in ([], [(sizes, False)]):
            for layer in (None, 0, 1, 2, 0xFFFF):
                chosen = [] if layer is None else [(box(b"lsel", struct.pack(">H", layer)), True)]
                for point in (None, 0, 1, 2):
                    chosen_too = [] if point is None else [(box(b"a1op", bytes([point])), True)]
                    properties = [(extent(*size), False), (configuration, True), *own, *chosen, *chosen_too]
                    yield "AVIF scaled layers", avif_file([Item(b"av01", b"".join(data), properties)])


def reinterpreted(generator):
    """Grids of another size than their item says: Pillow takes their bytes one after another for what the item says."""
    kinds = {mode: coded(generator, 64, 64, mode, sampling=sampling) for mode, sampling in (("RGB", "4:4:4"), ("L", "4:0:0"))}
    for size, said in itertools.product(((64, 64), (50, 40)), ((32, 32), (64, 20), (100, 10), (64, 65), (10, 200), (2000, 1), (7, 3))):
        for data, configuration in itertools.product(("RGB", "L"), repeat=2):
            for alpha in (None, said, size) if data == configuration else (None, said):
                content, own = grid_content(1, 1, *size, False), (kinds[configuration].configurations[0], True)
                items = [Item(b"grid", content, [(extent(*said), False)], [(b"dimg", [2])])]
                items.append(Item(b"av01", kinds[data].data[0], [(extent(64, 64), False), own]))
                if alpha is not None:
                    grey = kinds["L"]
                    items[0].references += [(b"prem", [3])] if generator.random() < 0.5 else []
                    items.append(Item(b"grid", content, [(extent(*alpha), False), (ALPHA, False)], [(b"auxl", [1]), (b"dimg", [4])]))
                    items.append(Item(b"av01", grey.data[0], [(extent(64, 64), False), (grey.configurations[0], True)]))
                yield "AVIF reinterpreted", avif_file(items)


def turned_alphas(generator):
    """Alpha that says how it is turned and cut must say what the colours say."""
    colour, alpha = coded(generator, 30, 20), coded(generator, 30, 20, "L", sampling="4:0:0")
    crops = [(box(b"clap", struct.pack(">8I", width, 1, 5, 1, 0, 1, 0, 1)), True) for width in (5, 6)]
    turns = [(box(b"irot", b"\1"), True), (box(b"irot", b"\2"), True), (box(b"imir", b"\0"), True), *crops]
    choices = [(), *((turn,) for turn in turns), (turns[0], turns[2]), (turns[2], turns[0]), (turns[0], turns[1])]
    for own, of_alpha in itertools.product(choices, repeat=2):
        says = (extent(30, 20), False)
        items = [Item(b"av01", colour.data[0], [says, (colour.configurations[0], True), *own])]
        items.append(Item(b"av01", alpha.data[0], [says, (alpha.configurations[0], True), (ALPHA, False), *of_alpha], [(b"auxl", [1])]))
        yield "AVIF turned alpha", avif_file(items)
