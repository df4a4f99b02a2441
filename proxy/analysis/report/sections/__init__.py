"""A module an answer: what it asks of Spark, bounded (``asked``), and that in words, charts and tables
(``section``, which is pure)."""
