"""Upgrades of request versions that Kafka 4 removed (KIP-896) to versions that brokers serve.

``upgrade`` defines them: a request is rewritten to a newer version, and its response to the older one. Each upgrade
is a generator of steps, which ``relay`` carries out; most upgrades have one step::

    request v0 --> SendToBroker(request v1) --> the broker's response v1 --> response v0

Each API has a module with the layouts that kio, the library of Kafka's messages, lacks; ``table`` lists all
upgrades, and ``proxy/convert/README.md`` shows it.
"""
