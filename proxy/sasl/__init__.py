"""Kafka's SASL mechanisms, for clients and servers. Pure: the caller provides random values.

``logins`` has the client side of ``PLAIN``, ``SCRAM`` and ``OAUTHBEARER``; a ``Conversation`` is the messages of
one login. ``users`` has the server side: a file of users, and the check of their passwords.
"""
