"""What Kafka 4 took away, made of what it kept: older versions of requests, and older record formats.

Pure and total: bytes and values in, bytes and values out. It knows no connection, no clock and no trio.
"""
