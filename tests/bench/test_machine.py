"""The figures of a process."""

import os
import time

from tests.bench.machine import cpu_seconds, cpu_ticks, resident_mib


def test_the_programs_name_does_not_shift_the_fields() -> None:
    numbers = " ".join(str(number) for number in range(1, 40))

    assert cpu_ticks(f"77 (java) S {numbers}") == 11 + 12
    assert cpu_ticks(f"77 (odd ) name) S {numbers}") == 11 + 12


def test_work_shows_as_cpu_time() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.monotonic() + 10

    while cpu_seconds(os.getpid()) < before + 0.05:
        assert time.monotonic() < deadline


def test_the_peak_of_memory_is_no_less_than_what_is_used_now() -> None:
    assert resident_mib(os.getpid(), "VmHWM") >= resident_mib(os.getpid(), "VmRSS") * 0.99 > 0
