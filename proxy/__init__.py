"""Sidefetch: a Kafka sidecar proxy that reads a modern cluster on behalf of old consumers.

The packages, in the order that a fetch meets them::

    net      sockets, listeners, tasks: the only trio
    relay    what to do for one client connection: order, addresses, who is asked
    fetch    what the client wants, what the broker brought, and the answer made from both
    session  KIP-227's rules, both halves
    wire     bytes <-> values

All but ``net``, ``demo`` and ``cli`` are pure: bytes, values and the time go in, bytes and values come out.
"""
