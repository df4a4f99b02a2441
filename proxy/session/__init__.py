"""Fetch sessions (KIP-227), both halves. Pure: it never imports trio and knows no sockets.

``upstream`` plays the client's half towards the real brokers; ``downstream`` plays the broker's half, for the
embedded cluster. Both share the id and epoch rules of ``epochs``::

                    full (0, 0)                      incremental (id, n)
        +------+ ------------------> granted id +-------------+ ---+
        | Full |                                | Incremental |    | n -> n + 1, after 2**31 - 1 comes 1
        +------+ <------------------------------+-------------+ <--+
           any refusal, loss or disagreement
"""
