"""The random numbers of docs/order.md ("Draws") written down once more, in Python."""

MASK32 = (1 << 32) - 1
TRANSFORM_BASE = 0x1000
PLACE_DRAW = 10


def philox(seed, epoch, position, use):
    """Philox4x32-10: four 32-bit numbers."""
    counter = [position & MASK32, position >> 32, epoch & MASK32, use]
    key = [seed & MASK32, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (second >> 32) ^ counter[1] ^ key[0],
            second & MASK32,
            (first >> 32) ^ counter[3] ^ key[1],
            first & MASK32,
        ]
        key = [(key[0] + 0x9E3779B9) & MASK32, (key[1] + 0xBB67AE85) & MASK32]
    return counter


class Numbers:
    """The random numbers of transform `index` of one sample."""

    def __init__(self, seed, epoch, position, index):
        self._where = (seed, epoch, position)
        self._use = TRANSFORM_BASE + 16 * index

    def _words(self, draw):
        r = philox(*self._where, self._use + draw)
        return r[1] << 32 | r[0], r[3] << 32 | r[2]

    def units(self, draw):
        """Two numbers in [0, 1)."""
        return tuple((x >> 11) * 2.0**-53 for x in self._words(draw))

    def integers(self, draw, first, second):
        """A uniform integer in [0, first] and one in [0, second]."""
        a, b = self._words(draw)
        return a * (first + 1) >> 64, b * (second + 1) >> 64
