"""Real old clients read through Sidefetch while faults are injected, and a judge checks that no record is lost.

The idea is that of Jepsen's test for Kafka: producers note acknowledged records; readers report each record that
they
get; faults are injected by a schedule with a seed. In the end each acknowledged record must have reached each
reader,
in order, without gaps, once; or again only if a member of a group goes back to its last commit.

``storm``    a run with all that it needs: brokers, wire, Sidefetch, clients
``workload`` producers and readers
``faults``   each kind of fault is a function that causes it and ends it
``wire``     stands between Sidefetch and the brokers: latency, cut and stalled connections
``judge``    pure: from acknowledged and read records to losses, duplicates and stalls
``watch``    Sidefetch's resources, on the machine and at the brokers
"""
