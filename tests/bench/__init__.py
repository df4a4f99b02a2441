"""Benchmarks: each case measures every way side by side, in turns, in one run on one machine.

Ratios between ways are what to look at; absolute figures are this machine's. ``python -m tests.bench`` runs all
cases, prints tables and what was expected of them, and writes ``bench-TIME.json``.

``frame`` takes turns and does the sums; ``reader`` is the client that reads and leaves, ``paced`` reads one record
at a time, ``follower``, ``idlers`` and ``librdkafka`` are those that stay, each a process of its own; ``load``
drives and meters them; ``rivals`` are other proxies; ``noise`` is the machine's; a case is a module.

``python -m tests.bench.report`` publishes a run in ``RESULTS.md`` and the README: ``digest`` makes the tables,
``chart`` the picture.
"""
