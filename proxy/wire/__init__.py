"""Bytes to values and back: Kafka's wire protocol, pure and, but for ``Repeats``, without memory of earlier frames.

What is on the fetch path is ours, as views that copy no records and make no object for an unchanged partition:
``fetch``. Every other message goes through kio, the schema-generated codec: ``messages``. Whatever is not decoded
passes as the bytes it came in.

Nothing here knows whose bytes it reads: malformed ones raise ``MalformedFrame``, and the caller says whose fault
that is. It never imports trio.
"""
