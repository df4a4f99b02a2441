"""Sidefetch: a Kafka sidecar proxy that reads a modern cluster on behalf of old consumers.

The packages, in the order in which a fetch passes through them::

    net      sockets, listeners and tasks; only ``net`` and the packages above it use trio
    relay    one client connection: order of responses, advertised addresses, forwarding
    fetch    the partitions that a client asks for, the records of the brokers, and the response made of both
    session  fetch sessions (KIP-227): the client's half and the broker's half
    wire     conversion between bytes and values

These packages except ``net`` are pure: they take bytes, values and the current time, and return bytes and values.
I/O is also in ``demo``, ``kube`` and ``cli``, which are above ``net``, and in ``analysis`` (Spark).
"""
