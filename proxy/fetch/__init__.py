"""The heart: what a client wants, what a broker brought, and the answer made from both. Pure; knows no trio.

::

    request --> Wanted (asks, by the broker's names) --> Lanes --> patient, quick --> UpstreamSession --> the broker
                   |          ^                            |
                   |          Topology (ids, leaders)     Held (brought, not handed out) <-- what the broker brought
                   |                                       v                                         |
                   +--------> Sheet (the answer if nothing is new) <-- offsets ----------------------+
                                |
                                v
                              answer, every partition in the client's order

``Reader`` decides when a client is answered, and what lanes ask for and how long they wait at the broker.

``Wanted`` and ``Sheet`` keep one table each for a client connection. A fetch that repeats the last one but for a
few offsets costs a comparison of bytes and those few partitions.
"""
