"""The fleet's answers: what the ledgers of many sidecars say together, by Spark.

Rows are read (``ingest``) as frames, one a record (``frames``), typed as the ledger defines them (``schemas``).
Each answer is a plan over those frames with columns that are declared (``answers``); nothing is run before it is
asked for, and nothing that grows with the fleet comes to the driver. The same ledgers, or ones that are made up
(``generate``), are played with other figures (``whatif``).

Needs the extra ``spark``. Nothing outside this package knows Spark.
"""
