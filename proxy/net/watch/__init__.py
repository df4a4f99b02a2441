"""What is told of a proxy, and to whom: ``watching`` builds what settings ask for, and nothing else is loaded.

``ledger`` writes rows to files and topics; ``traces`` and ``metrics`` feed OpenTelemetry's SDK; ``telemetry`` keeps
what ``admin`` answers over HTTP: probes, Prometheus' text, the status page. What is told is made, without I/O, in
``proxy.telemetry``.
"""
