"""Fetch (API key 1), all of its versions: requests and responses as views of their bytes.

=======  ===========================================================================================  =======
version  change                                                                                         source
=======  ===========================================================================================  =======
0        replica, max wait, min bytes; partitions: offset, max bytes; responses: error, high watermark
1        responses begin with the throttle time                                                         KIP-13
2        the client reads message format 1                                                              KIP-32
3        max bytes over the response; partitions are read in the request's order                        KIP-74
4        isolation level; responses: last stable offset, aborted transactions; message format 2         KIP-98
5        log start offset, both ways                                                                    KIP-107
6        the client knows KAFKA_STORAGE_ERROR                                                           KIP-112
7        sessions: id, epoch, forgotten topics; responses: top-level error, session id                  KIP-227
8        the client, not the broker, waits out the throttle time                                        KIP-219
9        current leader epoch                                                                           KIP-320
10       the client reads zstd                                                                          KIP-110
11       rack id; responses: preferred read replica                                                     KIP-392
12       flexible; last fetched epoch; responses: diverging epoch, current leader, snapshot id          KIP-595
13       topics by id                                                                                   KIP-516
14       tiered storage's error codes                                                                   KIP-405
15       replica state, a tagged field, instead of the replica id                                       KIP-903
16       responses: node endpoints of new leaders, a tagged field                                       KIP-951
17       replica directory id, a tagged field of followers                                              KIP-853
18       high watermark, a tagged field of followers                                                    KIP-1166
=======  ===========================================================================================  =======

Nothing else in Sidefetch knows these layouts.
"""

from proxy.wire.endpoints import Endpoint
from proxy.wire.fetch.repeats import Repeats
from proxy.wire.fetch.requests import (
    FetchOptions,
    FetchRequest,
    RequestLayout,
    TopicSection,
    read_request,
    request_layout,
    write_request,
)
from proxy.wire.fetch.responses import (
    FetchResponse,
    PartitionReply,
    ResponseLayout,
    erroneous,
    read_response,
    replace_endpoints,
    response_layout,
)
from proxy.wire.fetch.types import (
    FETCH,
    IDS_VERSION,
    MAX_VERSION,
    UNKNOWN,
    FetchPartition,
    PartitionKey,
    Topic,
    TopicId,
)

__all__ = [
    "FETCH",
    "IDS_VERSION",
    "MAX_VERSION",
    "UNKNOWN",
    "Endpoint",
    "FetchOptions",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "PartitionKey",
    "PartitionReply",
    "Repeats",
    "RequestLayout",
    "ResponseLayout",
    "Topic",
    "TopicId",
    "TopicSection",
    "erroneous",
    "read_request",
    "read_response",
    "replace_endpoints",
    "request_layout",
    "response_layout",
    "write_request",
]
