"""Fetch sessions (KIP-227), the client's half and the broker's half. Pure: no trio, no sockets.

``upstream`` is the client's half, which Sidefetch uses towards brokers; ``downstream`` is the broker's half, which
the embedded cluster of the demo uses. ``slots`` is the cache of a broker's sessions, which Sidefetch also uses for
its clients' sessions. Both halves have the rules for ids and epochs in ``epochs``::

                    full (0, 0)                      incremental (id, n)
        +------+ ------------------> granted id +-------------+ ---+
        | Full |                                | Incremental |    | n -> n + 1, after 2**31 - 1 comes 1
        +------+ <------------------------------+-------------+ <--+
           any refusal, loss or disagreement
"""
