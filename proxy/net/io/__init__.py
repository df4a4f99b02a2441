"""Sockets, TLS, HTTP, watched files and memory budgets: I/O that knows nothing of Kafka clients or brokers."""
