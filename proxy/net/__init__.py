"""Does what ``relay`` decides: sockets, listeners, tasks. The only trio of the proxy.

One nursery a client connection owns all of its tasks and links; cancelling it is the only way to stop them.
"""
