"""What is made of Sidefetch's records for people and for pipelines: rows of the ledger, states, spans.

Pure: records and times come in, values go out; ``net`` writes them, serves them and sends them.
"""
