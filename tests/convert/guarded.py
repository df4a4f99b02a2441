"""``python -m tests.convert.guarded COUNT``: the kernel on damaged inputs that end where memory does.

Behind each input is a page that cannot be read: whoever tries ends this process, its own for that.
"""

import ctypes
import mmap
import random
import sys
from typing import Final

from proxy.convert import kernel
from tests.convert.logs import Record, batch, message

_PAGE: Final = mmap.PAGESIZE
_NONE: Final = 0
"""mprotect's word for: neither read nor write."""


def main(count: int) -> None:
    chance = random.Random(7)
    pages = mmap.mmap(-1, 3 * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(address + 2 * _PAGE), _PAGE, _NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    for _ in range(count):
        data = _damaged(_sample(chance), chance)[: 2 * _PAGE]
        start = 2 * _PAGE - len(data)
        pages[start : 2 * _PAGE] = data
        _all_of(memoryview(pages)[start : 2 * _PAGE])
    print(f"{count} inputs")


def _sample(chance: random.Random) -> bytes:
    records = [
        Record(k, k, chance.randbytes(chance.randrange(5)), chance.randbytes(chance.randrange(300)))
        for k in range(chance.randrange(1, 6))
    ]
    log = batch(records)
    messages = b"".join(message(each, chance.randrange(2)) for each in records)
    return chance.choice([log, log[61:], messages, log + log, messages + log, b"\xff" * chance.randrange(80)])


def _damaged(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(damaged) + 1)
        if chance.random() < 0.3:
            del damaged[at:]
        elif chance.random() < 0.5:
            damaged[at : at + 4] = chance.choice([-1, 0, 2**31 - 1, len(data), 49]).to_bytes(4, signed=True)
        else:
            damaged[at : at + 1] = bytes([chance.choice([0, 1, 127, 128, 255, chance.randrange(256)])])
    return bytes(damaged)


def _all_of(data: memoryview) -> None:
    out = memoryview(bytearray(4 * _PAGE))
    for magic in (0, 1):
        kernel.convert_entries(data, 0, len(data), 0, magic, True, out)
        kernel.measure_entries(data, 0, len(data), 0, magic, False, False)
        kernel.convert_records(data, 3, 0, 9, 0, 0, False, 0, magic, False, out)
        kernel.raise_messages(data, 0, len(data), magic, 0, -1, out)
    kernel.convert_messages(data, 0, out)


if __name__ == "__main__":
    main(int(sys.argv[1]))
