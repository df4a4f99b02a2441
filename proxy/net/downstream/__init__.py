"""Client connections: listeners, TLS and SASL towards clients, connection limits and timeouts."""
