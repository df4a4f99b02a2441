"""Brokers, topics, leaders and replicas, and the selection of the replica that is read. Pure."""
