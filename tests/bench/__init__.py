"""Benchmarks: each case measures all ways side by side, in turns, in one run on one machine.

Compare ratios between ways; absolute figures hold for one machine only. ``python -m tests.bench`` runs all cases,
prints tables and unmet expectations, and writes ``bench-TIME.json``.

``frame`` alternates the ways and computes statistics; ``reader`` is a client that reads to the end and leaves,
``paced`` reads one record at a time, ``follower``, ``idlers`` and ``librdkafka`` are clients that stay, each in a
process of its own; ``load`` controls and measures them; ``rivals`` are other proxies; ``noise`` measures the
machine;
each case is a module.

``python -m tests.bench.report`` publishes a run in ``RESULTS.md`` and the README: ``digest`` makes the tables,
``chart`` the picture.
"""
