"""The sections of a report, one module for each question.

Each module has ``run_query``, which runs Spark queries and returns a result of bounded size, and ``section``, which
turns the result into texts, charts and tables and is pure. Some have ``figures``, the main figures at the top of
the page.
"""
