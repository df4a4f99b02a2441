"""Kafka's SASL mechanisms, for clients and servers. Pure: the caller provides random values.

``logins`` has the client side of ``PLAIN``, ``SCRAM`` and ``OAUTHBEARER``; a ``Conversation`` is the exchange of
messages of one login. ``scram`` has both sides of SCRAM. ``users`` has a server's file of users, and the check of
their passwords.
"""
