"""The speed of Spark's queries over a growing ledger on this machine, next to DuckDB: ``make bench-spark``.

Generated rows are tiled to the wanted number and written as Parquet once; then both read the same files, in turns,
in
one run. The growth and the ratio of the two hold elsewhere; the rows per second are this machine's.
"""
