"""Outputs of a proxy: log, ledger, traces, metrics, probes and the status page.

``outputs`` starts the outputs that the settings enable, and imports nothing else. ``ledger`` writes rows to files
and topics; ``traces`` and ``metrics`` feed OpenTelemetry's SDK; ``telemetry`` keeps the values that ``admin``
serves over HTTP. ``proxy.telemetry`` computes the values themselves, without I/O.
"""
