"""What is told of Sidefetch's work, as values: what is kept of it, what it is called, and how it is written.

``state`` keeps what people ask of a running Sidefetch, fed by the records of ``proxy.events``; ``instruments``
declares every metric over it, and ``document`` is what the status page and ``sidefetch top`` show. ``problems``
keeps what went wrong, and what to do.

Traces: ``attributes`` declares every span and attribute, ``spans`` builds them from records once an exchange is
over, ``producers`` finds whose records were delivered. ``net.watch.traces`` hands them to OpenTelemetry's SDK, if
``exporting`` finds that somebody wants them; ``net.watch.metrics`` does so with metrics.

The ledger: ``ledger`` declares every row and column, ``rows`` makes them of records, ``folding`` and ``sampling``
make them fewer. ``net.watch.ledger`` writes them.

Nothing in here does I/O or knows a clock: who runs it tells the time.
"""
