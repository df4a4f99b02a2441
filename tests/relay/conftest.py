"""Each transition between phases of a client fetch in these tests must be in the table of LOG_CACHE.md."""

from collections.abc import Iterator

import pytest

from proxy.fetch.phases import Connecting, Phase
from proxy.fetch.reader import Reader
from tests.relay.phases import ANSWERED, TRANSITIONS


@pytest.fixture(scope="package", autouse=True)
def _phases_are_those_of_the_table() -> Iterator[None]:
    def set_phase(reader: Reader, following: Phase) -> None:
        before = vars(reader).get("_phase")
        vars(reader)["_phase"] = following
        if before is None or (isinstance(following, Connecting) and reader.is_answering):
            return  # the beginning of a fetch, also after one whose client has left
        name = type(following).__name__ if reader.is_answering else ANSWERED
        has_arrived_empty = isinstance(before, Connecting) and name == ANSWERED
        assert has_arrived_empty or (type(before).__name__, name) in TRANSITIONS

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "_phase", property(lambda reader: vars(reader)["_phase"], set_phase), raising=False)
        yield
