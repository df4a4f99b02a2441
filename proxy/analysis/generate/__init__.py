"""Generated ledgers of simulated sidecars, for tests, for planning and for trying out the pipeline.

::

    mix        parameters of a fleet, with defaults: clients, traffic, failures
    cluster    brokers, racks, topics and replicas                  a function of (mix, seed, number)
    sidecar    one sidecar's rows, in the order of ``seq``          a function of (mix, seed, index, hours)
      connection   one client connection: client fetches, API versions, sessions with Sidefetch
      fetcher      the upstream fetches for it to one broker, and the broker's sessions
    files      rows as the files that a sidecar writes
    frames     rows as Spark DataFrames, of many sidecars, and of more by copying them

Rows follow the ledger's definition and agree with each other like those of a real sidecar: waits add up, the
records of client fetches are those of upstream fetches, and sessions begin before they are used. The same arguments
give the same rows.

The model leaves out interactions between sidecars: sessions are evicted at a rate from ``mix``, not because a
broker's slots are taken (``whatif.slots`` models that). Racks and leaders never move. There is no backlog, so one
upstream fetch brings the records of each client fetch.

All modules except ``frames`` are plain Python and do not need the extra ``spark``.
"""
