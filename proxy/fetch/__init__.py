"""The core: fetchers fill cached logs from brokers, and readers answer client fetches from them. Knows no trio.

::

    client fetch --> Reader --> Delivery: FetchState (partitions, offsets), ResponseTemplate ("nothing new")
                       |  ^
                offset |  | slices of records, errors, offsets
                       v  |
                    LogCache --> LogIndex: SharedLog (a CachedLog, its identity, its readers, its fetcher)
                       |  ^      OffsetTable (high watermark, last stable offset, log start offset)
                       |  |      Routes (the source of each partition)
                       v  |
                    Fetcher: long-poll, live, catch-up --> UpstreamSession --> a broker

``Reader`` decides when a client fetch is answered; ``Positions`` has the log that it reads of each partition.
``LogCache`` decides which fetcher reads which log, when it asks and how long the broker may wait. Readers know no
connections, and fetchers know clients only as readers of a log. ``LOG_CACHE.md`` has the states and the rules.

Records that a client cannot read are converted on their way out (``converting``); ``FetchState`` skips records that
the client would never see, such as the end of a transaction, on its behalf.

A client with a session names only what has changed in its requests. ``ClientSessions`` gives the reader the whole
fetch, and reduces the response to what has changed.

``FetchState`` and ``ResponseTemplate`` keep one table each for a client connection. A fetch that repeats the last
one but for a few offsets costs a comparison of bytes and those few partitions.
"""
