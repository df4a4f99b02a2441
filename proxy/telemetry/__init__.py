"""The telemetry of Sidefetch as plain values: statistics, and the declarations of metrics, spans and ledger rows.

``state`` accumulates the records of ``proxy.events``; ``instruments`` declares every metric over it, and
``document`` is the content of the status page and of ``sidefetch top``. ``problems`` keeps recent problems with
their remedies.

Traces: ``attributes`` declares every span and attribute, ``spans`` builds spans from events at the end of a client
    fetch, ``producers`` finds the spans of the records' producers. ``net.observability.traces`` passes them to
    OpenTelemetry's SDK if ``exporting`` finds an exporter; ``net.observability.metrics`` does so with metrics.

The ledger: ``ledger`` declares every row and column, ``rows`` makes them from events, ``folding`` and ``sampling``
reduce their number. ``net.observability.ledger`` writes them.

Nothing in here does I/O or has a clock: callers pass the time.
"""
