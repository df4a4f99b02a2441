"""What Spark makes of a ledger's rows on this machine, as they grow, next to DuckDB: ``make bench-spark``.

Rows are generated, tiled to as many as are wanted, and written as Parquet once; both then read the same files, in
turns, in one run. What holds elsewhere is how it grows and how the two compare; rows a second are this machine's.
"""
