"""Sockets, TLS, HTTP, watched files and memory budgets: I/O that does not depend on Kafka clients or brokers."""
