"""Transparent mode: client connections to brokers that the packet filter redirects to Sidefetch.

``original`` reads the original destination from the kernel, ``destinations`` finds the broker at that address,
``redirected`` serves the client as a client of that broker, and ``splice`` forwards connections that are not
plaintext Kafka. ``proxy.kube.redirect`` makes the packet filter's rules, since they belong to a pod.
"""
