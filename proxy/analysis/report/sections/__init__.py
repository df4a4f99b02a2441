"""The sections of a report, a module for each question.

Each has a bounded result (``asked``), and that in words, charts and tables (``section``, which is pure).
"""
