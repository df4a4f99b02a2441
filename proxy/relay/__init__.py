"""The protocol logic of one client connection, without I/O: ``net`` passes events in and executes the commands.

It decides which broker gets which request, in which order responses leave, and which broker addresses the client
sees.

::

    client --> frames --+--> all but fetches, unchanged or upgraded: PassThrough, on one connection ---> broker
                        |        |
                        |        +--> requests for a group coordinator: SendToGroupCoordinator ---> that broker
                        |
                        +--> fetches, one after another: fetch.Reader, from the logs of a LogCache
    responses leave through ``Pipeline``, in the order of their requests.
"""
