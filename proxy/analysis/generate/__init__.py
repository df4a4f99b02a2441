"""Ledgers of sidecars that never were: for tests, for planning, for trying the pipeline out.

::

    mix        who reads, how often, what goes wrong: figures, with defaults
    cluster    brokers, racks, topics and replicas                  a function of (mix, seed, number)
    sidecar    one sidecar's rows, in the order of ``seq``          a function of (mix, seed, index, hours)
      connection   one connection of its client: exchanges, what it speaks, its sessions with Sidefetch
      lane         what is fetched for it from one broker, and the broker's sessions
    files      rows as the files that a sidecar writes
    frames     the same as Spark's frames, many sidecars at once, and as many more by tiling

Rows are what the ledger says that they are, and agree with each other as a sidecar's do: waits add up, what sources
brought is what fetches brought, sessions begin before they are used. The same arguments give the same rows.

What is not modelled: sidecars know nothing of each other, so that sessions are evicted at a rate that ``mix`` tells
and not because a broker's slots are taken (that is ``whatif.slots``); racks and leaders never move; there is no
backlog, so that each exchange with records is answered by one fetch.

All but ``frames`` is plain Python and needs nothing that the extra ``spark`` installs.
"""
