"""Inputs made from good ones: damaged where protocols are easily damaged."""

import random
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["Mutator"]

_EDGES: Final = (-(2**63), -(2**31), -(2**15), -2, -1, 0, 1, 2, 3, 13, 14, 48, 49, 61, 127, 128, 255, 2**15 - 1)
_LARGE: Final = (2**16, 2**20, 2**24, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1)
_BYTES: Final = (0, 1, 2, 3, 4, 15, 16, 31, 32, 63, 64, 127, 128, 129, 253, 254, 255)
_MOST_KEPT: Final = 4000
"""Inputs kept beside the seeds; then an old one makes room."""
_LONGEST: Final = 1 << 16
"""The largest size of an input: quadratic growth shows at a fraction of that."""


class Mutator:
    """An endless supply of inputs, the same for the same seed and the same ``keep``."""

    def __init__(self, seeds: Sequence[bytes], seed: int) -> None:
        assert seeds
        self._chance = random.Random(seed)
        self._seeds = list(seeds)
        self._kept: list[bytes] = []
        self._kinds: tuple[Callable[[bytearray, int], None], ...] = (
            self._flip,
            self._set,
            self._set,
            self._number,
            self._number,
            self._number,
            self._varint,
            self._cut,
            self._drop,
            self._insert,
            self._repeat,
            self._splice,
            self._swap,
        )

    def keep(self, data: bytes) -> None:
        """*data* was good for something new: more is to be made of it."""
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(data)
        else:
            self._kept[int(self._chance.random() * _MOST_KEPT)] = data

    def next(self) -> bytes:
        chance = self._chance
        pick = chance.random()
        if pick < 0.01:
            return chance.randbytes(int(chance.random() * 80))
        data = bytearray(self._one())
        for _ in range(1 + int(chance.random() ** 3 * 6)):
            kind = self._kinds[int(chance.random() * len(self._kinds))]
            kind(data, int(chance.random() * (len(data) + 1)))
        return bytes(data[:_LONGEST])

    def _one(self) -> bytes:
        some = self._kept if self._kept and self._chance.random() < 0.6 else self._seeds
        return some[int(self._chance.random() * len(some))]

    def _flip(self, data: bytearray, at: int) -> None:
        if at < len(data):
            data[at] ^= 1 << int(self._chance.random() * 8)

    def _set(self, data: bytearray, at: int) -> None:
        data[at : at + 1] = bytes((_BYTES[int(self._chance.random() * len(_BYTES))],))

    def _number(self, data: bytearray, at: int) -> None:
        """A size, count or offset that is impossible, or just possible."""
        chance = self._chance
        size = (1, 2, 4, 4, 4, 8)[int(chance.random() * 6)]
        pick = chance.random()
        if pick < 0.6:
            value = _EDGES[int(chance.random() * len(_EDGES))]
        elif pick < 0.8:
            value = _LARGE[int(chance.random() * len(_LARGE))]
        else:
            value = len(data) - at + int(chance.random() * 9) - 4
        data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size)

    def _varint(self, data: bytearray, at: int) -> None:
        """Without an end, or of many bytes for a small number."""
        size = 1 + int(self._chance.random() * 11)
        data[at : at + (size if self._chance.random() < 0.5 else 1)] = (
            b"\xff" * size if self._chance.random() < 0.5 else b"\x80" * (size - 1) + b"\x01"
        )

    def _cut(self, data: bytearray, at: int) -> None:
        del data[at:]

    def _drop(self, data: bytearray, at: int) -> None:
        del data[at : at + 1 + int(self._chance.random() * 8)]

    def _insert(self, data: bytearray, at: int) -> None:
        data[at:at] = self._chance.randbytes(1 + int(self._chance.random() * 8))

    def _repeat(self, data: bytearray, at: int) -> None:
        """Repeat a part many times, with or without an adjusted count before it."""
        part = data[at : at + 1 + int(self._chance.random() * 64)]
        if part:
            times = min(2 + int(self._chance.random() ** 4 * 400), _LONGEST // len(part))
            data[at:at] = part * times

    def _splice(self, data: bytearray, at: int) -> None:
        other = self._one()
        start = int(self._chance.random() * (len(other) + 1))
        data[at:] = other[start:]

    def _swap(self, data: bytearray, at: int) -> None:
        size = 1 + int(self._chance.random() * 16)
        one, other = data[at : at + size], data[at + size : at + 2 * size]
        data[at : at + 2 * size] = other + one
