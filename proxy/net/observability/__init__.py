"""Outputs of what a proxy does: log, ledger, traces, metrics, probes and the status page.

``outputs`` starts those that the settings ask for, and imports nothing else. ``ledger`` writes rows to files and
topics; ``traces`` and ``metrics`` feed OpenTelemetry's SDK; ``telemetry`` keeps the values that ``admin`` serves by
HTTP. The values themselves are made, without I/O, in ``proxy.telemetry``.
"""
