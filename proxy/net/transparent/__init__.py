"""Transparent mode: clients that connect to brokers, and arrive here since the packet filter has redirected them.

``original`` asks the kernel where they were going, ``destinations`` knows which broker that is, ``redirected`` has
them served as that broker's clients, and ``splice`` passes on what is not Kafka in plaintext. The packet filter's
rules are made in ``proxy.kube.redirect``, since they are a pod's.
"""
