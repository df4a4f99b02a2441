"""What would be if: ledgers, played through the rules that brokers and Sidefetch go by, with other figures.

::

    broker    a broker's session cache: shards of proxy.session's own slots          plain Python
    replay    one broker's part of a ledger, played through such a cache             plain Python
    slots     the same for all brokers of a ledger and several sizes, by Spark
    sizing    the smallest cache that is large enough for a fleet
    racks     what crosses zones with replicas and readers elsewhere
    chunks    what other chunks of conversion would waste
    upgrade   what goes when some clients are upgraded

Each is a function of a ledger and some parameters, and says what it cannot know.
"""
