"""What-if questions: replay ledgers by the rules of brokers and of Sidefetch, with other settings.

::

    broker    a model of a broker's session cache: shards of ``proxy.session.slots``      plain Python
    replay    one broker's part of a ledger, replayed with such a cache                   plain Python
    slots     ``replay`` for all brokers of a ledger and several cache sizes, with Spark
    fleet     a simulated fleet's sessions with one broker                                plain Python
    sizing    the smallest cache that is large enough for a fleet, with Spark
    racks     bytes across racks with brokers and readers in other racks
    chunks    padding with other chunk sizes of conversion
    upgrade   costs that end if some clients are upgraded

Each question is a function of a ledger (``sizing``: of a fleet) and parameters, and documents its limitations.
"""
