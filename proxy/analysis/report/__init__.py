"""The report on a fleet's ledgers: figures, recommendations, charts and tables, as a page, JSON or CSV.

A report is a value (``model``), made from the results of Spark queries (``build``), and shown as a page (``page``,
``charts``), JSON or CSV (``files``).
"""
