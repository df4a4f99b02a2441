"""Analysis, with Spark, of the ledgers of a fleet: the rows that sidecars write about fetches and connections.

``ingest`` reads ledger rows into one DataFrame per record type (``frames``), with the column types of the ledger's
definition (``schemas``). Each answer is a query over those frames with declared columns (``answers``). Queries are
lazy: Spark runs one only when its result is collected or written, and the driver never collects data whose size
grows with the fleet. ``whatif`` replays the same ledgers, or generated ones (``generate``), with other settings.

Needs the extra ``spark``. Outside this package only the commands that start Spark (``proxy.cli``) import it.
"""
