"""The heart: what a client wants, what a broker brought, and the answer made from both. Pure; knows no trio.

::

    request --> Wanted (asks, by the broker's names) --> Reader --> UpstreamSession --> the broker
                   |          ^                            |
                   |          Topology (ids, leaders)      v
                   +--------> Sheet (the answer if nothing is new) <-- what the broker brought
                                |
                                v
                              answer, every partition in the client's order

``Wanted`` and ``Sheet`` keep one table each for a client connection. A fetch that repeats the last one but for a
few offsets costs a comparison of bytes and those few partitions.
"""
