"""Request versions that Kafka 4 removed (KIP-896), answered by a broker that serves newer ones.

``upgrade`` says how: a request is rewritten to a newer version, its response to the older one. Each request is a
generator of steps, which ``relay`` carries out; most have one step::

    request v0 --> AskBroker(request v1) --> the broker's response v1 --> response v0

Each API has a module with the layouts that kio does not know; ``table`` has them all, and
``proxy/convert/README.md`` shows it.
"""
