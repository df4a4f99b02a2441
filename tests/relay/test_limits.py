"""The sizes of requests, by API, beyond which they are refused before they are received."""

import pytest

from proxy.errors import ClientProtocolError, LimitReached
from proxy.relay.limits import check_size
from proxy.wire.apis import ApiKey
from proxy.wire.fetch import FetchOptions, FetchPartition, PartitionKey, TopicId, write_request
from proxy.wire.headers import RequestHeader

MIB = 1 << 20


@pytest.mark.parametrize("version", [0, 11, 12, 13, 18])
@pytest.mark.parametrize(("name_bytes", "forgets"), [(249, False), (120, True)])
def test_fetch_of_as_many_partitions_as_are_let_through_passes(
    version: int, name_bytes: int, forgets: bool
) -> None:
    topics = [
        TopicId(number.to_bytes(16)) if version >= 13 else str(number).rjust(name_bytes, "x")
        for number in range(10_000)
    ]
    asks = {PartitionKey(topic, 0): FetchPartition(0, 100) for topic in topics}
    options = FetchOptions(500, 1, rack_id="r" * 32_767)
    header = RequestHeader(ApiKey.FETCH, version, 1, "c" * 32_767)

    check_size(
        10_000, ApiKey.FETCH, len(write_request(header, options, 0, -1, asks, list(asks) if forgets else []))
    )


def test_fetch_of_more_bytes_names_its_limit() -> None:
    with pytest.raises(LimitReached, match="a fetch of 100000000 bytes, 6828576 suffice for 20000") as raised:
        check_size(20_000, ApiKey.FETCH, 100_000_000)

    assert raised.value.limit == "max-fetch-partitions"


@pytest.mark.parametrize("api_key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, 0x6082, -1, 999])
def test_sasl_requests_and_tokens_have_half_a_mib(api_key: int) -> None:
    check_size(20_000, api_key, MIB // 2)
    with pytest.raises(ClientProtocolError, match="of 524289 bytes, 524288 are allowed"):
        check_size(20_000, api_key, MIB // 2 + 1)


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.OFFSET_COMMIT])
def test_other_requests_have_no_limit_of_their_own(api_key: int) -> None:
    check_size(20_000, api_key, 100 * MIB)
