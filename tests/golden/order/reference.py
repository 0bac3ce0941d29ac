"""The order of docs/order.md, written from that page alone. Run it to make order.json anew: python3 reference.py > order.json"""
import json

M32 = 0xFFFFFFFF


def philox(counter, key):
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & M32, (p0 >> 32) ^ c3 ^ k1, p0 & M32
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c0, c1, c2, c3


def draw(seed, epoch, position, use):
    return philox((position & M32, position >> 32, epoch & M32, use), (seed & M32, seed >> 32))


def words(seed, epoch, stream, round_, value):
    return draw(seed, epoch, (16 * stream + round_) << 32 | value, 0)


def permute(x, size, seed, epoch, stream):
    h = 1
    while 4**h < size:
        h += 1
    while True:
        left, right = x >> h, x & (2**h - 1)
        for round_ in range(12):
            left, right = right, left ^ (words(seed, epoch, stream, round_, right)[0] & (2**h - 1))
        x = left << h | right
        if x < size:
            break
    if size >= 2 and x < 2 and words(seed, epoch, stream, 15, 0)[0] & 1:
        x ^= 1
    return x


def sample_at(position, size, seed, epoch, shuffle):
    position %= size
    if shuffle == "none":
        return position
    if shuffle == "global":
        return permute(position, size, seed, epoch, 0)
    block, window = 16, 16 * 1024
    blocks = size // block
    number = min(position // window, max(1, blocks // 1024) - 1)
    first = number * window
    window_size = window if number < max(1, blocks // 1024) - 1 else size - first
    place = first + permute(position - first, window_size, seed, epoch, 1 + number)
    if place // block < blocks:
        place = permute(place // block, blocks, seed, epoch, 0) * block + place % block
    low, high = words(seed, epoch, 0, 14, 0)[:2]
    return (place + (high << 32 | low) % size) % size


def candidates(size, seed, epoch, position, count):
    low, high = draw(seed, epoch, position, 1)[:2]
    return [permute(i, size, high << 32 | low, 0, 0) for i in range(count)]


def main():
    cases = []
    for size in (1, 2, 3, 5, 15, 16, 17, 1000, 32785, 1281167, 2**40 + 7):
        for seed, epoch in ((0, 0), (0, 1), (2**63 + 12345, 7), (42, 2**32 - 1)):
            for shuffle in ("global", "blocks"):
                last = [size - 1, size, 3 * size + 1] if size > 16 else []
                positions = list(range(min(size, 16))) + last + [size // 2]
                cases.append({"size": size, "seed": seed, "epoch": epoch, "shuffle": shuffle, "positions": positions,
                              "samples": [sample_at(p, size, seed, epoch, shuffle) for p in positions]})
    for size, position in ((1, 0), (10, 3), (1281167, 99999), (1281167, 1281170)):
        cases.append({"size": size, "seed": 5, "epoch": 2, "position": position,
                      "candidates": candidates(size, 5, 2, position, min(size, 8))})
    print("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]")


if __name__ == "__main__":
    main()
