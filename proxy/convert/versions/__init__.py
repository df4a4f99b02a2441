"""Request versions that Kafka 4 removed (KIP-896), answered by a broker that serves newer ones.

``lift`` says how: a request is rewritten to a newer version, its answer to the older one. What one request takes is
a generator of steps, which ``relay`` carries out; most ask once::

    request v0 --> Ask(request v1) --> the broker's answer v1 --> answer v0

Each API has a module with the layouts that kio does not know; ``table`` has them all, and
``proxy/convert/README.md`` shows it.
"""
