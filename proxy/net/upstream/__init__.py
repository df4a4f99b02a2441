"""Broker connections: TLS and SASL towards brokers, metadata, and requests to group coordinators."""
