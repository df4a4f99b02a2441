"""The metadata of a cluster, and the selection of the replica from which each partition is read. Pure."""
