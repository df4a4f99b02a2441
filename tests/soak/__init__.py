"""Real old clients read through Sidefetch while things go wrong, and a judge says whether anything was lost.

The idea is that of Jepsen's test for Kafka: records are produced and those that are acknowledged are written down;
readers tell each record that they get; faults are injected by a schedule that a seed makes again. In the end each
acknowledged record must have come to each reader, in order, without gaps, once; or again only where a member of a
group goes back to what it has committed.

``storm``    brokers, wire, Sidefetch, clients: all that a run needs, and the run itself
``workload`` who produces and who reads
``faults``   what goes wrong, each kind a function that makes it happen and ends it
``wire``     stands between Sidefetch and the brokers: latency, cut and stalled connections
``judge``    pure: what was acknowledged, what was read, and what follows
``watch``    what Sidefetch takes of the machine and of the brokers
"""
