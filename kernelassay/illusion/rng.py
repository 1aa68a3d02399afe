"""Random numbers that any implementation can repeat: the published generator, bit for bit.

A variant of xorshift128+ (shifts 23, 17, 26), its state from SplitMix64; seeds of parts from
BLAKE2b over the parent's seed and a name (arXiv 2606.20128 and the code it describes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_MASK = (1 << 64) - 1


def derive(seed: int, name: str) -> int:
    """The 64-bit seed of a part: the 8-byte BLAKE2b of the seed (little endian) and the name."""
    data = (seed & _MASK).to_bytes(8, "little") + name.encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _splitmix(seed: int) -> int:
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


class Generator:
    """The published generator from a 64-bit seed.

    It is not quite xorshift128+: what is kept of a step is its new word xored with the second word
    once more, and what is given is the new word plus the second one.
    """

    def __init__(self, seed: int) -> None:
        self._a, self._b = _splitmix(seed), _splitmix((seed + 1) & _MASK)
        if self._a == 0 and self._b == 0:
            self._a = 1

    def next(self) -> int:
        """64 random bits."""
        x, y = self._a, self._b
        x ^= (x << 23) & _MASK
        new = x ^ (x >> 17) ^ y ^ (y >> 26)
        self._a, self._b = y, new ^ y
        return (new + y) & _MASK

    def choice(self, among: Sequence[T]) -> T:
        """One of several, by the remainder."""
        return among[self.next() % len(among)]


def words(seed: int, count: int) -> NDArray[np.uint64]:
    """``count`` random words, keyed by ``seed``.

    From Philox, whose words NumPy promises to keep, and not from :class:`Generator`: that steps
    element by element, and no verdict hangs on which uniform draw it is.
    """
    return np.random.Philox(key=seed & _MASK).random_raw(count)


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """``count`` numbers in [0, 1): the upper 53 bits of :func:`words`."""
    return (words(seed, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def picks(seed: int, count: int, among: int) -> NDArray[np.int64]:
    """``count`` numbers in [0, among), by the remainder of :func:`words`."""
    return (words(seed, count) % np.uint64(among)).astype(np.int64)
