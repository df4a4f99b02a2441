"""Encoding and decoding of Kafka's wire protocol: pure and, but for ``Repeats``, without memory of earlier frames.

Messages on the fetch path have a codec of their own, ``fetch``: it works on views, copies no records, and creates
no object for an unchanged partition. All other messages use kio, the schema-generated codec: ``messages``. Messages
that are not decoded are forwarded as the bytes that arrived.

These modules do not know the sender of the bytes: malformed bytes raise ``MalformedFrame``, and the caller decides
which peer caused it. They never import trio.
"""
