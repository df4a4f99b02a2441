"""Sockets, listeners and tasks, which carry out the decisions of ``relay``. The only part of the proxy with trio.

One nursery for each client connection owns all of its tasks and broker connections; cancelling it is the only way
to stop them.
"""
