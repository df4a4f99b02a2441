"""SASL as Kafka has it: who says what to whom until a connection has a principal. Pure; randomness is given.

``logins`` are what a client side knows of itself, ``PLAIN``, ``SCRAM`` and ``OAUTHBEARER``, and talk to a server in
``Conversation``s. ``users`` is a server's side: a file of users, and what it takes to be one of them.
"""
