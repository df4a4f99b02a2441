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

``Reader`` decides when a client is answered, and what lanes ask for; ``Waits``, how long they wait at the broker,
and whose silence may be taken for its word. Records that a client cannot read are converted on their way out
(``converting``); what it would never see, such as the end of a transaction, ``Wanted`` skips on its behalf.

A client with a session names only what has changed in its requests. ``ClientSessions`` gives the reader the whole,
and shapes the answer: what the client was not told yet.

``Wanted`` and ``Sheet`` keep one table each for a client connection. A fetch that repeats the last one but for a
few offsets costs a comparison of bytes and those few partitions.
"""
