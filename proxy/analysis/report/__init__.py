"""The report on ledgers.

It consists of values (``model``), shown as a page (``page``, ``charts``), JSON or CSV (``files``).
"""
