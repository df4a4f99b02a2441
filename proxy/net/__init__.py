"""Carries out the decisions of ``relay``: sockets, listeners, tasks. The only part of the proxy that uses trio.

One nursery for each client connection owns all of its tasks and links; cancelling it is the only way to stop them.
"""
